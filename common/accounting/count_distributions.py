"""Distributions of counts: of other users' reports in the blanket, and of dummies."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import scipy

from shuffledp.common.accounting import binomial
from shuffledp.common.accounting.binomial import RELATIVE_ERROR, smaller_tail
from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.base import Vector

MAX_COUNT: Final = 10**9
"""Largest number of users, and of dummies, for which the bounds have been checked."""


class CountDistribution(Protocol):
    """The distribution of a whole number X ≥ 0."""

    def tails(self, outcome: Vector) -> tuple[Vector, Vector]:
        """Return P(X ≤ outcome) and P(X > outcome), elementwise, the smaller to full precision."""

    def probabilities(self, outcome: Vector) -> Vector:
        """Return P(X = outcome), elementwise; `outcome` contains whole numbers."""

    def thinned(self, share: float) -> "CountDistribution | None":
        """Return the distribution if units are kept with probability `share`; None if unknown."""
        return None


@dataclass(frozen=True, slots=True)
class Binomial(CountDistribution):
    """Binomial distribution: `trials` independent units, each present with probability `chance`."""

    trials: int
    chance: float

    def __post_init__(self) -> None:
        check_between("trials", self.trials, 0, MAX_COUNT)
        check_between("the probability", self.chance, 0, 1)

    def tails(self, outcome: Vector) -> tuple[Vector, Vector]:
        return binomial.tails(outcome, np.asarray(float(self.trials)), self.chance)

    def probabilities(self, outcome: Vector) -> Vector:
        return binomial.probabilities(outcome, np.asarray(float(self.trials)), self.chance)

    def thinned(self, share: float) -> "Binomial":
        return Binomial(self.trials, self.chance * share)


@dataclass(frozen=True, slots=True)
class NegativeBinomial(CountDistribution):
    """Negative binomial distribution with a given mean and r > 0; both add up over users."""

    r: float
    mean: float

    def __post_init__(self) -> None:
        if not 0 < self.r <= MAX_COUNT:
            raise AccountingError(f"r is {self.r}; it must be above 0 and at most {MAX_COUNT}")
        check_between("the mean", self.mean, 0, MAX_COUNT)

    @property
    def _success(self) -> float:
        return self.r / (self.r + self.mean)

    def tails(self, outcome: Vector) -> tuple[Vector, Vector]:
        """Return both tails: P(X ≤ k) = I_s(r, k+1), s = r/(r + mean) [DLMF, 8.17.24]."""
        lower, upper = scipy.special.betainc, scipy.special.betaincc
        parameters = (self.r, outcome + 1, self._success)
        return smaller_tail(lower, upper, parameters, outcome, mean=self.mean)

    def probabilities(self, outcome: Vector) -> Vector:
        return scipy.stats.nbinom.pmf(outcome, self.r, self._success)

    def thinned(self, share: float) -> "NegativeBinomial":
        return NegativeBinomial(self.r, self.mean * share)


@dataclass(frozen=True, slots=True)
class Groups(CountDistribution):
    """`size` times another count, for users who add either all of their dummies or none."""

    distribution: CountDistribution
    size: int

    def __post_init__(self) -> None:
        check_between("the group size", self.size, 1, MAX_COUNT)

    def tails(self, outcome: Vector) -> tuple[Vector, Vector]:
        return self.distribution.tails(np.floor(outcome / self.size))

    def probabilities(self, outcome: Vector) -> Vector:
        whole = outcome % self.size == 0
        return np.where(whole, self.distribution.probabilities(np.floor(outcome / self.size)), 0.0)

    def thinned(self, share: float) -> CountDistribution | None:
        """Return the other count's thinned distribution if `size` is 1, else None (unknown)."""
        return self.distribution.thinned(share) if self.size == 1 else None


@dataclass(frozen=True, slots=True)
class Conditioned(CountDistribution):
    """
    Upper bounds for a distribution given an event of probability at least 1 - missing.

    P(X = k | event) ≤ P(X = k) / (1 - missing) for any such event; the factor also bounds
    expectations of non-negative functions. Tails and probabilities may thus sum to more than 1.
    The event may depend on which units are kept, so none is `thinned`.
    """

    distribution: CountDistribution
    missing: float
    """Probability of the complement, rounded up; at least 0 and below 1."""

    def __post_init__(self) -> None:
        if not 0 <= self.missing < 1:
            raise AccountingError(f"missing is {self.missing}; it must be at least 0 and below 1")

    def tails(self, outcome: Vector) -> tuple[Vector, Vector]:
        below, above = self.distribution.tails(outcome)
        return below / (1 - self.missing), above / (1 - self.missing)

    def probabilities(self, outcome: Vector) -> Vector:
        return self.distribution.probabilities(outcome) / (1 - self.missing)


def beyond(distribution: CountDistribution, most: int) -> float:
    """Return P(X > most), rounded up."""
    return _tails_at(distribution, most)[1] * (1 + RELATIVE_ERROR)


def _tails_at(distribution: CountDistribution, outcome: int) -> tuple[float, float]:
    """Return P(X ≤ outcome) and P(X > outcome)."""
    below, above = distribution.tails(np.array([float(outcome)]))
    return float(below[0]), float(above[0])


def quantile(distribution: CountDistribution, chance: float) -> float:
    """Return the least outcome with P(X ≤ outcome) ≥ chance."""
    return float(least_whole(lambda outcome: _tails_at(distribution, outcome)[0] >= chance))


def upper_quantile(distribution: CountDistribution, chance: float) -> float:
    """Return the least outcome with P(X > outcome) ≤ chance."""
    return float(least_whole(lambda outcome: _tails_at(distribution, outcome)[1] <= chance))


def least_whole(holds: Callable[[int], bool], low: int = 0) -> int:
    """Find the least whole number from `low` on that meets a monotone condition, by doubling."""
    if holds(low):
        return low
    high = max(2 * low, 1)
    while not holds(high):
        low, high = high, 2 * high
    between = range(low + 1, high)
    return between.start + bisect_left(between, True, key=holds)  # noqa: FBT003  # what `holds` returns


def check_between(name: str, value: float, least: float, most: float) -> None:
    """Check that a number lies in a range, or raise AccountingError."""
    if not least <= value <= most:
        raise AccountingError(f"{name} is {value}; it must lie between {least} and {most}")


ROUNDING: Final = 2.0**-52
"""Twice the maximum relative error of one floating-point operation."""
_EXTRA_ROUNDINGS: Final = 64


@dataclass(frozen=True, slots=True)
class BinomialWindow:
    """P(X = k) for k = first .. first + len(masses) - 1, and both tails beyond, all rounded up."""

    first: int
    masses: Vector
    """P(X = k), rounded up: enlarged by a relative (8·len(masses) + 64)·ROUNDING."""
    below: float
    """P(X < first), rounded up."""
    above: float
    """P(X ≥ first + len(masses)), rounded up."""

    @classmethod
    def of(cls, distribution: Binomial, tail: float) -> "BinomialWindow":
        """
        Lay out the window so that a mass of at most `tail` lies beyond either side.

        Masses follow from the mode outward by P(X = k+1) / P(X = k) = (n-k)·c / ((k+1)(1-c)),
        without special functions: after j steps the relative error is below 5j roundings. Dividing
        by the sum can only enlarge the masses, since the true ones sum to at most 1.
        """
        first, last = quantile(distribution, tail), upper_quantile(distribution, tail)
        trials, chance = distribution.trials, distribution.chance
        mode = min(max(float(np.floor((trials + 1) * chance)), first), last)
        rising, falling = np.arange(mode, last), np.arange(mode, first, -1)
        odds = chance / (1 - chance) if chance < 1 else np.inf
        above_mode = np.cumprod((trials - rising) / (rising + 1) * odds)
        below_mode = np.cumprod(falling / (trials - falling + 1) / odds)
        masses = np.concatenate([below_mode[::-1], [1.0], above_mode])
        masses /= masses.sum()
        masses *= 1 + (8 * len(masses) + _EXTRA_ROUNDINGS) * ROUNDING
        below, above = distribution.tails(np.array([first - 1, last]))
        return cls(
            first=int(first),
            masses=masses,
            below=float(below[0]) * (1 + RELATIVE_ERROR),
            above=float(above[1]) * (1 + RELATIVE_ERROR),
        )
