"""Bounds and attacks for comparison only; no service imports them."""
