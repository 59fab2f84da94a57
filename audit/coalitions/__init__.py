"""Distinguishing games: how well each coalition distinguishes two values of one user."""
