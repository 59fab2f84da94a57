"""
The anonymity set of a victim: honest users and dummies, except those known to the adversary.

The set determines the distribution of formula 1's blanket size M = 1 + Bin(n_h, γ) + D.
"""

from dataclasses import dataclass
from numbers import Integral
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.accounting import count_distributions
from shuffledp.common.accounting.binomial import RELATIVE_ERROR, masses_between
from shuffledp.common.accounting.count_distributions import MAX_COUNT, Binomial, CountDistribution
from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.base import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymitySet:
    """
    The users and dummies of one batch. The victim is one of `users`.

    Dummies may be the users' own or the shuffler's, since the analyzer cannot tell them apart.
    Dummies of colluding users are not included.
    """

    users: int
    dummies: int = 0
    """Fixed number of honest dummies, including the victim's own."""
    random_dummies: CountDistribution | None = None
    """Distribution of the number of further honest dummies, independent of values; None if 0."""
    known_dummies: int = 0
    """Number of fixed and random dummies that the adversary can identify and drop."""
    colluders: int = 0
    """Number of `users` whose reports the adversary knows."""

    def __post_init__(self) -> None:
        for name in ("users", "dummies", "known_dummies", "colluders"):
            value: int = getattr(self, name)
            least = int(name == "users")
            if not (isinstance(value, Integral) and least <= value <= MAX_COUNT):
                rule = f"it must be a whole number, {least} .. {MAX_COUNT}"
                raise AccountingError(f"{name} is {value}; {rule}")
        if self.colluders >= self.users:
            raise AccountingError(
                f"{self.colluders} colluders among {self.users} users leave no user to protect"
            )
        if self.random_dummies is None and self.known_dummies > self.dummies:
            raise AccountingError(
                f"known_dummies is {self.known_dummies}; it must be at most dummies, {self.dummies}"
            )

    @property
    def others(self) -> int:
        """Number of honest users besides the victim."""
        return self.users - 1 - self.colluders

    @property
    def typical_dummies(self) -> float:
        """The median number of dummies that the adversary cannot drop."""
        random = self.random_dummies
        median = 0.0 if random is None else count_distributions.quantile(random, 0.5)
        return float(self.hiding_dummies(np.array(median)))

    def hiding_dummies(self, random: Vector) -> Vector:
        """Return the dummies that the adversary cannot drop, for each number of random ones."""
        return np.maximum(self.dummies - self.known_dummies + random, 0)


_TAIL: Final = 1e-24
"""Maximum probability below the first bin, which is charged to δ."""
_UPPER_TAIL: Final = 1e-9
"""Maximum probability beyond the lower edge of the last bin, which is open."""
_MAX_BINS: Final = 512
_MAX_SINGLE: Final = 200


def subdivided(edges: Vector, pieces: NDArray[np.int64]) -> Vector:
    """Return the edges with each interval between neighbours split into equal pieces."""
    cut = [
        np.linspace(start, end, count, endpoint=False)
        for start, end, count in zip(edges[:-1], edges[1:], pieces, strict=True)
    ]
    return np.concatenate([*cut, edges[-1:]])


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of a count by their lower edges; the last is open."""

    edges: Vector

    @classmethod
    def of(cls, distribution: CountDistribution, number: int) -> "Bins":
        """Spread up to 2·number bins over a distribution; single counts if its range is narrow."""
        return cls.between(
            count_distributions.quantile(distribution, _TAIL),
            count_distributions.upper_quantile(distribution, _UPPER_TAIL),
            number,
        )

    @classmethod
    def between(cls, low: float, high: float, number: int) -> "Bins":
        """Spread up to 2·number bins from low to high; single counts if that range is narrow."""
        if high - low <= _MAX_SINGLE:
            return cls(np.arange(low, max(low, high) + 1))
        even = np.linspace(low, high, number)
        # For a long tail, such as a geometric one, the low end matters most.
        growing = low + np.geomspace(1, high - low, number) - 1
        return cls(np.unique(np.floor(np.concatenate([even, growing]))))

    def masses(self, distribution: CountDistribution) -> tuple[Vector, float]:
        """Return the probability of each bin, and of everything below the first; rounded up."""
        missed, _ = distribution.tails(self.edges[:1] - 1)
        _, last = distribution.tails(self.edges[-1:] - 1)
        closed = masses_between(*distribution.tails(self.edges - 1))
        inside = np.concatenate([closed, last])
        return inside * (1 + RELATIVE_ERROR), float(missed[0]) * (1 + RELATIVE_ERROR)

    def refined(self, losses: Vector, allowed: float, most: int = _MAX_BINS) -> "Bins":
        """
        Split the closed bins, which now cost `losses`, so that they cost about `allowed` in total.

        There are at most about `most` bins then.

        A bin that costs c costs c/k in k pieces: Σ c/k is least for given Σ k if k ∝ √c.
        """
        widths = np.diff(self.edges)
        roots = np.sqrt(np.maximum(losses, 0))
        pieces = np.ceil(roots * roots.sum() / max(allowed, 1e-6 * float(losses.sum()), 1e-300))
        pieces = np.clip(pieces, 1, np.minimum(widths, most)).astype(int)
        if pieces.sum() > most:
            pieces = np.maximum(1, pieces * most // pieces.sum())
        return Bins(np.unique(np.floor(subdivided(self.edges, pieces))))


class BlanketSize:
    """The distribution of the blanket size M of a victim in an anonymity set."""

    def __init__(self, anonymity_set: AnonymitySet, blanket: float) -> None:
        """Set up the distribution; with probability `blanket` another user's report is uniform."""
        self._set = anonymity_set
        self._others = Binomial(anonymity_set.others, min(blanket, 1.0))
        self._random = anonymity_set.random_dummies or Binomial(0, 0.0)

    def first_bins(self, number: int) -> tuple[Bins, Bins]:
        """Spread up to 2·number bins over M, and over the number of random dummies."""
        random = Bins.of(self._random, number)
        others = Bins.of(self._others, number)
        lowest = self._sizes(random)[0] + others.edges[0]
        highest = min(self._sizes(random)[-1] + others.edges[-1], 4.0 * MAX_COUNT)
        return Bins.between(lowest, highest, number), random

    def _sizes(self, random: Bins) -> Vector:
        """Return M without the others' reports, at the lower edge of each bin of random dummies."""
        return 1 + self._set.hiding_dummies(random.edges)

    def masses(self, bins: Bins, random: Bins) -> tuple[Vector, Vector, float]:
        """
        Return the distribution of M, with each bin of random dummies at its lower edge.

        Returns the probability of each bin of M given each bin of random dummies, shape (random
        bins, bins); of each bin of random dummies, shape (random bins,); and of everything below
        either first bin. All are rounded up.
        """
        weights, missed = random.masses(self._random)
        starts = bins.edges - self._sizes(random)[:, None]
        below, above = self._others.tails(starts - 1)
        inside = masses_between(below, above)
        rows = np.concatenate([inside, above[:, -1:]], axis=1) * (1 + RELATIVE_ERROR)
        lower = float(weights @ below[:, 0]) * (1 + RELATIVE_ERROR)
        return rows, weights, missed + lower
