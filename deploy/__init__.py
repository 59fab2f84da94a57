"""The operator's tools, and code that runs several parties."""

from shuffledp import check_name

check_name(__name__)
