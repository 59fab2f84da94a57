"""Distinguishing games: how well each coalition tells one user's value from another."""
