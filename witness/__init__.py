"""A third party's witness: cosigns the checkpoints of an analyzer's log."""

from shuffledp import check_name

check_name(__name__)
