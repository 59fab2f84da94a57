"""Verify, decode, print and export released results."""
