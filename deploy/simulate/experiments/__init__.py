"""Experiments of papers, run again."""
