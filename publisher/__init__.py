"""The publisher: serves the page with which people take part in a browser. It holds no secret."""

from shuffledp import check_name

check_name(__name__)
