"""A user's device: the only party that sees a true value."""

from shuffledp import check_name

check_name(__name__)
