"""Research: plans, simulations, bounds to compare with, and questions to the accountant."""

from shuffledp import check_name

check_name(__name__)
