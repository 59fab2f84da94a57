"""Experiments of published papers, run again."""
