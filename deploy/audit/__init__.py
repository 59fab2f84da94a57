"""Simulated attacks by every coalition of parties on the deployed code."""
