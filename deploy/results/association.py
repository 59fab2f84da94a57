"""
Association of two attributes, from a noisy table of them: a chi-squared test, and Cramér's V.

For a table with r rows and c columns, shares a and b of its margins, P = I - 11ᵀ/size and
A = diag(a) - aaᵀ, the departures D = p - a·bᵀ from independence have, to first order,

    Cov D = A ⊗ B / n + v·P ⊗ P + V_a·P ⊗ wwᵀ + V_b·uuᵀ ⊗ P,    u = 1/r - a,    w = 1/c - b

(docs/theory/estimation.md). With estimates for u and w, both last products contain the product of
the margins' errors once too often, so V_a·V_b·P ⊗ P is subtracted. The statistic T is a weighted
sum of D² with the mean tr(W·Cov D) and the variance 2·tr((W·Cov D)²); a multiple of it with the
same two moments is taken as chi-squared (Satterthwaite). A weight is a product of one for the row
and one for the column, and so are the traces: the cost grows with the number of cells, not of pairs
of cells. From no paper; tests simulate level, power and coverage.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple, Self

import numpy as np
from scipy import special

from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.messages.result import CONFIDENCE, ShareTable, interval_half_width

_FREQUENT: Final = 5
"""Least share of a value that counts for Cramér's V, in standard errors of the share."""
_Weights = Sequence[Vector]
"""Weights of rows and of columns; a cell's is their product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """Whether, and how strongly, two attributes depend on each other in the population."""

    statistic: float
    """Chi-squared, with noise and sampling accounted for."""
    degrees: float
    """Degrees of freedom: at most (r - 1)·(c - 1), rarely whole."""
    p_value: float
    """Probability of a statistic at least as large if the attributes are independent."""
    cramers_v: float
    """0 for independent attributes, 1 if one follows from the other. What noise and sampling add
    is subtracted; cut at 0 and 1."""
    interval: tuple[float, float]
    """95 % confidence interval of Cramér's V; 0 to 1 if too few values are frequent."""

    @classmethod
    def of(cls, cells: ShareTable, margins: Sequence[ShareTable], n_users: int) -> Self:
        """Test a table of two attributes, given by its cells and the margins of both."""
        table = _Table.of(cells, margins, n_users)
        # Between Pearson's weights 1/(a·b), for the sample's noise, and even ones for added noise.
        even = math.sqrt(n_users * table.own)
        weights = [_inverse(shares + even) for shares in table.known]
        mean, square = table.traces(weights)
        scale = mean / square if min(mean, square) > 0 else 0.0
        statistic, degrees = scale * table.total(weights), scale * mean
        v, interval = _cramers_v(table, margins)
        return cls(
            statistic=statistic,
            degrees=degrees,
            p_value=float(special.chdtrc(degrees, statistic)) if degrees else 1.0,
            cramers_v=v,
            interval=interval,
        )


def _cramers_v(table: "_Table", margins: Sequence[ShareTable]) -> tuple[float, tuple[float, float]]:
    """
    Return Cramér's V and its interval, over frequent values.

    φ² = V²·min(r - 1, c - 1) is the sum of D²/(a·b). The trace is the bias of this estimate. Its
    variance is 2·tr((W·Cov D)²) at 0, and grows about in proportion to φ²; the interval consists
    of all φ² within 1.96 of its own errors of the estimate, as Wilson's.
    """
    weights = [
        (each.shares > _FREQUENT * each.standard_error) * _inverse(shares)
        for each, shares in zip(margins, table.known, strict=True)
    ]
    rank = min(int((each > 0).sum()) for each in weights) - 1
    if rank < 1:
        return 0.0, (0.0, 1.0)
    (mean, square), found = table.traces(weights), table.total(weights)
    growth = table.variance_of_phi(weights) / found if found else 0.0
    phi, z2 = found - mean, interval_half_width(CONFIDENCE) ** 2
    reach = math.sqrt(max(0.0, z2 * (2 * square + growth * phi + z2 * growth**2 / 4)))
    middle = phi + z2 * growth / 2
    v, low, high = (
        math.sqrt(min(max(each / rank, 0.0), 1.0)) for each in (phi, middle - reach, middle + reach)
    )
    return v, (low, high)


class _Part(NamedTuple):
    """The matrix diag(diagonal) + sign·ggᵀ, of one attribute."""

    diagonal: Vector
    g: Vector
    sign: float

    def trace(self, weights: Vector) -> float:
        """Return tr(W·X)."""
        return float(weights @ (self.diagonal + self.sign * self.g**2))

    def trace_with(self, other: Self, weights: Vector) -> float:
        """Return tr(W·X·W·Y)."""
        alone = self.diagonal * other.diagonal + other.sign * self.diagonal * other.g**2
        alone = alone + self.sign * other.diagonal * self.g**2
        across = float(weights @ (self.g * other.g))
        return float(weights**2 @ alone) + self.sign * other.sign * across**2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Table:
    """The shares of a table, and the variances of their noise."""

    n_users: int
    shares: Vector
    """Shape (r, c)."""
    margins: tuple[Vector, Vector]
    known: tuple[Vector, Vector]
    """Margins as distributions: cut at 0, with the sum 1."""
    own: float
    """v."""
    of_margins: tuple[float, float]
    """V_a and V_b."""

    @classmethod
    def of(cls, cells: ShareTable, margins: Sequence[ShareTable], n_users: int) -> Self:
        """Return the table; its variances follow from the standard errors."""
        first, second = (each.shares for each in margins)
        r, c = len(first), len(second)
        by_rows, by_columns = (each.standard_error**2 for each in margins)
        own = cells.standard_error**2 - by_rows / c**2 - by_columns / r**2
        positive = np.maximum(first, 0.0), np.maximum(second, 0.0)
        return cls(
            n_users=n_users,
            shares=cells.shares.reshape(r, c),
            margins=(first, second),
            known=(positive[0] / positive[0].sum(), positive[1] / positive[1].sum()),
            own=max(0.0, own / ((1 - 1 / r) * (1 - 1 / c))),
            of_margins=(by_rows / (1 - 1 / r), by_columns / (1 - 1 / c)),
        )

    @property
    def departures(self) -> Vector:
        """D, shape (r, c)."""
        return self.shares - np.outer(*self.margins)

    def total(self, weights: _Weights) -> float:
        """Return the weighted sum of D²."""
        return float(weights[0] @ self.departures**2 @ weights[1])

    def traces(self, weights: _Weights) -> tuple[float, float]:
        """Return tr(W·Cov D) and tr((W·Cov D)²)."""
        (of_rows, of_columns), ones = self.of_margins, [np.ones(len(each)) for each in self.known]
        sampled = [_Part(each, each, -1.0) for each in self.known]
        even = [_Part(each, each / math.sqrt(len(each)), -1.0) for each in ones]
        uneven = [_Part(0 * each, 1 / len(each) - each, 1.0) for each in self.margins]
        parts = (
            (1 / self.n_users, sampled),
            (self.own - of_rows * of_columns, even),
            (of_rows, [even[0], uneven[1]]),
            (of_columns, [uneven[0], even[1]]),
        )
        mean = sum(size * math.prod(map(_Part.trace, pair, weights)) for size, pair in parts)
        square = sum(
            size * more * math.prod(map(_Part.trace_with, pair, other, weights))
            for (size, pair), (more, other) in product(parts, parts)
        )
        return mean, square

    def variance_of_phi(self, weights: _Weights) -> float:
        """Return the first-order variance of Σ D²/(a·b), over values with positive weights."""
        (rows, columns), (a, b) = weights, self.margins
        ratio = self.departures * np.outer(rows, columns)
        squares = self.departures * ratio
        # The slope in a cell: directly, and by both of its margins.
        slope = 2 * ratio - (2 * a @ ratio + squares.sum(axis=0) * columns)
        slope = slope - (2 * ratio @ b + squares.sum(axis=1) * rows)[:, np.newaxis]
        known = np.maximum(self.shares, 0.0)
        known = known / known.sum()
        sampled = float((known * slope**2).sum() - (known * slope).sum() ** 2) / self.n_users
        means = slope.mean(axis=1), slope.mean(axis=0)
        rest = slope - means[0][:, np.newaxis] - means[1] + slope.mean()
        added = self.own * float((rest**2).sum()) + sum(
            variance * len(each) * float(each.var())
            for variance, each in zip(self.of_margins, means, strict=True)
        )
        return sampled + added


def _inverse(shares: Vector) -> Vector:
    """Return 1 / shares; 0 for those that are 0."""
    return np.divide(1.0, shares, out=np.zeros_like(shares), where=shares > 0)
