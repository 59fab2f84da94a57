"""Messages of the wire protocol, and their generated code."""

from shuffledp import check_name

check_name(__name__)
