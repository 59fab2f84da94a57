"""Formats, rules and computations that two or more parties share."""
