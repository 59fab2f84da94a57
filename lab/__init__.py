"""Research: plans, simulations, bounds to compare with, and questions to the accountant."""
