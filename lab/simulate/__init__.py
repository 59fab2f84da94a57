"""Simulate protocols on one data set without encryption: a million users in seconds."""
