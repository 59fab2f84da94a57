"""Simulated attacks by every coalition of parties against the deployed code."""

from shuffledp import check_name

check_name(__name__)
