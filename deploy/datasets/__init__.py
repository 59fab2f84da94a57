"""Data sets that are shipped with the project."""
