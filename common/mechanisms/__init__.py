"""Mechanisms, one per file, each with the device's and the analyzer's half."""
