"""Binomial tails and stop-loss sums, in forms that lose no digits where privacy is decided."""

import numpy as np
from scipy import special, stats

from common.accounting.tails import RELATIVE_ERROR, smaller_tail
from common.mechanisms.mechanism import Vector


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


def stop_loss(trials: Vector, chance: float, threshold: Vector) -> Vector:
    """
    Bound E[(X - t)_+] from above for X ~ Binomial(trials, chance), elementwise.

    With k = ⌊t⌋ it equals (trials·chance - t)·P(X > k) + (k+1)(1-chance)·P(X = k+1). The more
    usual form, trials·chance·P(X' ≥ k) - t·P(X > k), subtracts two numbers that agree in up to
    six digits when there are 10^9 trials.

    Args:
        trials: At least 0, whole numbers.
        chance: Between 0 and 1.
        threshold: t, at least 0.

    Returns:
        Values at least the true ones, by a relative RELATIVE_ERROR of the terms.

    Cost: two binomial evaluations each.
    """
    threshold = np.minimum(threshold, trials + 1)
    whole = np.floor(threshold)
    tail = more_than(whole, trials, chance)
    rest = (whole + 1) * (1 - chance) * stats.binom.pmf(whole + 1, trials, chance)
    distance = trials * chance - threshold
    slack = RELATIVE_ERROR * (np.abs(distance) * tail + rest)
    above: Vector = np.maximum(distance * tail + rest, 0) + slack
    return above


def interval_masses(edges: Vector, trials: Vector, chance: float) -> Vector:
    """
    Give P(edges[..., j] ≤ X < edges[..., j+1]) for X ~ Binomial(trials, chance).

    Differences are taken in the tail that is small, so that they keep their digits.
    """
    below, above = tails(edges - 1, trials, chance)
    left, right = edges[..., :-1], edges[..., 1:]
    in_lower_half = right + left < 2 * trials * chance
    masses: Vector = np.where(in_lower_half, np.diff(below, axis=-1), -np.diff(above, axis=-1))
    return np.maximum(masses, 0)
