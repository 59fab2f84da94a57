"""Mechanisms of a collector who is trusted with every true value: what a comparison refers to."""
