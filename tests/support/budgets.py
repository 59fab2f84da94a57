"""Populations and their budgets, for tests."""

from analyzer.budgets import PopulationBudget
from deploy.tasks.population_budgets import PopulationBudgets


def population_budgets(population: str = "staff", *, spent: float = 0.70001) -> PopulationBudgets:
    """Return a population that was promised 1.2 at delta 1e-5."""
    budget = PopulationBudget(epsilon=1.2, delta=1e-5, spent_epsilon=spent)
    return PopulationBudgets(population=population, releases=2, budgets=(budget,))
