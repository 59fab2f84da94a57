"""Formats, rules and computations that two or more parties share."""

from shuffledp import check_name

check_name(__name__)
