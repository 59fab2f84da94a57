"""The shuffler: sees who sends but never what, and forgets who before it forwards."""

from shuffledp import check_name

check_name(__name__)
