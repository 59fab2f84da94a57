"""Sees what was reported, never who reported it."""
