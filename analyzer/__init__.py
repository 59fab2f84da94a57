"""The analyzer: sees what was reported but never by whom."""

from shuffledp import check_name

check_name(__name__)
