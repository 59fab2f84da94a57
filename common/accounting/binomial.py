"""Binomial tails and stop-loss sums, in forms that lose no digits where privacy is decided."""

import numpy as np
from scipy import special, stats

from common.accounting.tails import RELATIVE_ERROR, masses_between, smaller_tail
from common.mechanisms.randomizer import Vector


def at_most(outcome: Vector, trials: Vector, chance: float) -> Vector:
    """P(X ≤ outcome) for X ~ Binomial(trials, chance), elementwise; whole numbers."""
    return tails(outcome, trials, chance)[0]


def more_than(outcome: Vector, trials: Vector, chance: float) -> Vector:
    """P(X > outcome) for X ~ Binomial(trials, chance), elementwise; whole numbers."""
    return tails(outcome, trials, chance)[1]


def tails(outcome: Vector, trials: Vector, chance: float) -> tuple[Vector, Vector]:
    """
    Give P(X ≤ k) and P(X > k), elementwise; whole numbers.

    P(X > k) is the regularized incomplete beta function of chance at (k+1, n-k) [DLMF, 8.17.5].
    """
    outcome, trials = np.broadcast_arrays(outcome, trials)
    return smaller_tail(
        special.betaincc,
        special.betainc,
        (outcome + 1, trials - outcome, chance),
        inside=(outcome >= 0) & (outcome < trials),
        low=outcome < trials * chance,
        below=np.where(outcome < 0, 0.0, 1.0),
    )


def stop_loss(
    trials: Vector, chance: float, threshold: Vector, margin: float = RELATIVE_ERROR
) -> Vector:
    """
    Bound E[(X - t)_+] from one side for X ~ Binomial(trials, chance), elementwise.

    With k = ⌊t⌋ it equals (trials·chance - t)·P(X > k) + (k+1)(1-chance)·P(X = k+1). The more
    usual form, trials·chance·P(X' ≥ k) - t·P(X > k), subtracts two numbers that agree in up to
    six digits when there are 10^9 trials.

    Args:
        trials: At least 0, whole numbers.
        chance: Between 0 and 1.
        threshold: t, at least 0.
        margin: What is added, relative to the terms: RELATIVE_ERROR for an upper bound, its
            negative for a lower one.

    Returns:
        Values at least 0.

    Cost: two binomial evaluations each.
    """
    threshold = np.minimum(threshold, trials + 1)
    whole = np.floor(threshold)
    tail = more_than(whole, trials, chance)
    rest = (whole + 1) * (1 - chance) * stats.binom.pmf(whole + 1, trials, chance)
    distance = trials * chance - threshold
    above: Vector = distance * tail + rest + margin * (np.abs(distance) * tail + rest)
    return np.maximum(above, 0)


def interval_masses(edges: Vector, trials: Vector, chance: float) -> Vector:
    """Give P(edges[..., j] ≤ X < edges[..., j+1]) for X ~ Binomial(trials, chance)."""
    return masses_between(*tails(edges - 1, trials, chance))
