"""Sees who sends, never what; forgets who before it forwards."""
