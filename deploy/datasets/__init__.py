"""Shipped data sets, data files, and synthetic populations."""
