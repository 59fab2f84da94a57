"""
PrivKVM: iterations of PrivKV, each with the means of the one before for fakes [YHMZ19].

Fakes at the true means would not bias the estimates. Each iteration multiplies the bias by its
share of fakes. Each is a task of its own, in which people draw a key again; the costs add up to ε
by sequential composition.

The paper could not be read for the split of ε; as in published programs, the first iteration pays
ε1 = κε for whether a key is owned, and each of c iterations (1-κ)ε/c for the value. Later
iterations toss a fair coin for the key, owned or not: that costs nothing, and leaves the
frequencies to the first. Half of their reports name a value, and 1-f of these are fakes.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from common.errors import TaskError
from common.mechanisms.base import Vector
from common.mechanisms.key_value.privkv import PairRequest

MAX_ITERATIONS: Final = 1000
_LEAST: Final = 2.0**-32
"""Least ε of a part of a report, as in `ResponseWeights`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationBudget:
    """The cost of one iteration."""

    key_epsilon: float
    """ε1, of whether a key is owned; 0 in every iteration but the first."""
    value_epsilon: float
    """ε2, of the value."""

    @property
    def local_epsilon(self) -> float:
        """Both together, rounded down."""
        total = self.key_epsilon + self.value_epsilon
        exact = Fraction(self.key_epsilon) + Fraction(self.value_epsilon)
        return total if Fraction(total) <= exact else math.nextafter(total, 0.0)


def budgets(local_epsilon: float, iterations: int, key_share: float) -> tuple[IterationBudget, ...]:
    """
    Split a local ε over iterations, so that their exact sum is at most that ε.

    Args:
        local_epsilon: Of all iterations together; above 0 and finite.
        iterations: c, 1 .. MAX_ITERATIONS.
        key_share: κ, of local_epsilon; above 0 and below 1.

    Raises:
        TaskError: One of them is out of range.
    """
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise TaskError(f"there are {iterations} iterations; there may be 1 to {MAX_ITERATIONS}")
    if not 0 < local_epsilon < math.inf:
        raise TaskError(f"local_epsilon is {local_epsilon}; it must be above 0 and finite")
    if not 0 < key_share < 1:
        raise TaskError(f"key_share is {key_share}; it must be above 0 and below 1")
    key = local_epsilon * key_share
    value = (local_epsilon - key) / iterations
    if min(key, value) < _LEAST:
        raise TaskError(
            f"local_epsilon is {local_epsilon}: of {iterations} iterations, the least part would "
            f"be {min(key, value)}; below 2^-32 reports would carry no signal"
        )
    while Fraction(key) + iterations * Fraction(value) > Fraction(local_epsilon):
        value = math.nextafter(value, 0.0)
    first = IterationBudget(key_epsilon=key, value_epsilon=value)
    return (first, *[IterationBudget(key_epsilon=0.0, value_epsilon=value)] * (iterations - 1))


def fakes_after(means: Vector, low: float, high: float) -> tuple[float, ...]:
    """
    Return the fakes of an iteration: the means that the one before estimated, in low .. high.

    Args:
        means: In -1 .. 1 but for noise, which is clipped.
        low: Of the values.
        high: Of the values.
    """
    scaled = low + (means + 1) / 2 * (high - low)
    return tuple(np.clip(scaled, low, high).tolist())


def iteration(whole: PairRequest, budget: IterationBudget, means: Vector | None) -> PairRequest:
    """
    Return the parameters of one iteration. Run by the operator.

    Args:
        whole: Of all iterations.
        budget: Of this one.
        means: Estimated by the one before, in -1 .. 1; None for the first, which has the whole's
            fakes.
    """
    total = budget.local_epsilon
    fakes = whole.fakes if means is None else fakes_after(means, whole.low, whole.high)
    return replace(whole, local_epsilon=total, key_share=budget.key_epsilon / total, fakes=fakes)


def bias_left(shares_of_fakes: list[Vector], start: Vector, means: Vector) -> Vector:
    """
    Return the bias after iterations with these shares of fakes: (t - m) · φ1 · φ2 · ..

    Args:
        shares_of_fakes: φ of each iteration.
        start: The first fakes t, in -1 .. 1.
        means: The true means m.
    """
    left: Vector = np.prod(shares_of_fakes, axis=0) * (start - means)
    return left
