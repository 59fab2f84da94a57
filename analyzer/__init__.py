"""Sees what, never who."""
