"""
The distribution of the number of uniform messages around a victim, in bins: M = 1 + Bin(n_h, γ) +
D.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.binomial import RELATIVE_ERROR
from common.accounting.count_distributions import (
    MAX_COUNT,
    Binomial,
    CountDistribution,
    interval_masses,
    quantile,
    upper_quantile,
)
from common.mechanisms.base import Vector

_TAIL: Final = 1e-24
"""Probability below the first bin, which is charged to δ."""
_UPPER_TAIL: Final = 1e-9
"""Probability above which the last bin is left open."""
_MAX_BINS: Final = 768
_MAX_SINGLE: Final = 200


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of a count by their lower edges; the last is open."""

    edges: Vector

    @classmethod
    def of(cls, law: CountDistribution, number: int) -> "Bins":
        """Spread bins over the range of a distribution; single numbers if there are few."""
        return cls.between(quantile(law, _TAIL), upper_quantile(law, _UPPER_TAIL), number)

    @classmethod
    def between(cls, low: float, high: float, number: int) -> "Bins":
        """Spread bins from low to high; single numbers if there are few."""
        if high - low <= _MAX_SINGLE:
            return cls(np.arange(low, max(low, high) + 1))
        even = np.linspace(low, high, number)
        # For a long tail, such as a geometric one, the low end matters most.
        growing = low + np.geomspace(1, high - low, number) - 1
        return cls(np.unique(np.floor(np.concatenate([even, growing]))))

    def masses(self, law: CountDistribution) -> tuple[Vector, float]:
        """Return the probability of each bin, and of everything below the first; rounded up."""
        missed, _ = law.tails(self.edges[:1] - 1)
        _, last = law.tails(self.edges[-1:] - 1)
        inside = np.concatenate([interval_masses(self.edges, law), last])
        return inside * (1 + RELATIVE_ERROR), float(missed[0]) * (1 + RELATIVE_ERROR)

    def refined(self, losses: Vector, allowed: float) -> "Bins":
        """
        Split bins so that charging their lower edges costs about `allowed` in total.

        The number of pieces is proportional to the root of a bin's cost, which needs the fewest
        bins.
        """
        widths = np.diff(self.edges)
        roots = np.sqrt(np.maximum(losses, 0))
        pieces = np.ceil(roots * roots.sum() / max(allowed, 1e-6 * float(losses.sum()), 1e-300))
        pieces = np.clip(pieces, 1, np.minimum(widths, _MAX_BINS)).astype(int)
        if pieces.sum() > _MAX_BINS:
            pieces = np.maximum(1, pieces * _MAX_BINS // pieces.sum())
        cut = [
            np.linspace(start, end, count, endpoint=False)
            for start, end, count in zip(self.edges[:-1], self.edges[1:], pieces, strict=True)
        ]
        return Bins(np.unique(np.floor(np.concatenate([*cut, self.edges[-1:]]))))


class BlanketSize:
    """The distribution of M around a victim in an anonymity set."""

    def __init__(self, crowd: AnonymitySet, blanket: float) -> None:
        """
        Set up the distribution.

        Args:
            crowd: Honest users and dummies.
            blanket: γ, the share of the others' reports that are uniform.
        """
        self._others = Binomial(crowd.others, min(blanket, 1.0))
        self._least = 1 + max(0, crowd.dummies - crowd.known_dummies)
        self._lost = max(0, crowd.known_dummies - crowd.dummies)
        self._random = crowd.random_dummies or Binomial(0, 0.0)

    def first_bins(self, number: int) -> tuple[Bins, Bins]:
        """Spread bins over M, and over the random dummies in M."""
        random = Bins.of(self._random, number)
        others = Bins.of(self._others, number)
        lowest = self._sizes(random)[0] + others.edges[0]
        highest = min(self._sizes(random)[-1] + others.edges[-1], 4.0 * MAX_COUNT)
        return Bins.between(lowest, highest, number), random

    def _sizes(self, random: Bins) -> Vector:
        """Return M without the others' reports, at the lower edge of each bin of random dummies."""
        return self._least + np.maximum(random.edges - self._lost, 0)

    def masses(self, bins: Bins, random: Bins) -> tuple[Vector, Vector, float]:
        """
        Return the distribution of M, with each bin of random dummies at its lower edge.

        Returns:
            The probability of each bin of M given each bin of random dummies, shape (random bins,
            bins); of
            each bin of random dummies; and of everything below a first bin.
        """
        weights, missed = random.masses(self._random)
        rows, below = [], missed
        for size, weight in zip(self._sizes(random), weights, strict=True):
            row, lower = Bins(bins.edges - size).masses(self._others)
            rows.append(row)
            below += weight * lower
        return np.array(rows), weights, below
