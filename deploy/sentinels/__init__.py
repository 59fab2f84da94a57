"""Sentinels: an operator's test submissions."""
