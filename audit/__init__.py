"""Simulated attacks by every coalition of parties against the deployed code."""
