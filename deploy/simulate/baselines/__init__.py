"""Mechanisms of a trusted collector, for comparison."""
