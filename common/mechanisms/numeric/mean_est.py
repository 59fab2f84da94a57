"""
MeanEST, the mechanism of Duchi, Jordan and Wainwright for several numbers at once [DJW18].

The numbers are rounded at random to a corner V of the cube. The report is a corner z, with weight
`true` on V's side of the cube, where z·V > 0, and weight `other` elsewhere. A bit represents ±B.

With an even number of coordinates some corners are ties, z·V = 0. As printed, each side T contains
the ties: a tie has probability 1/|T|, a corner on the wrong side has 1/((e^ε+1)|T|), and the local
ε is ln(e^ε+1), more than ε. Here ties have weight `other`, so no odds exceed true : other. B is
also smaller than as printed, since ties carry no information.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.mechanisms import bits
from shuffledp.common.mechanisms.base import Counts, Reports, check_valid
from shuffledp.common.mechanisms.numeric.coded_number import Spread, SpreadNumber
from shuffledp.common.mechanisms.numeric.number import Moments, Numbers, check_numbers, to_grid
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.mechanisms.sampling import exact_coins
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.protocols import NumberMechanismName

_CHUNK: Final = 1 << 20
"""Coordinates drawn at a time, to bound memory."""


@dataclass(frozen=True)
class MeanEst(SpreadNumber):
    """Report a corner of the cube, one bit for each coordinate, least significant first."""

    NAME: ClassVar[NumberMechanismName] = "mean-est"
    FACTORS: ClassVar[int] = 1

    dimensions: int
    weights: ResponseWeights

    @classmethod
    def for_epsilon(cls, dimensions: int, local_epsilon: float) -> Self:
        return cls(dimensions, ResponseWeights.for_epsilon(local_epsilon))

    @cached_property
    def _side(self) -> int:
        """Return the number of corners on one side, half of those that are not ties."""
        ties = 0 if self.dimensions % 2 else math.comb(self.dimensions, self.dimensions // 2)
        return ((1 << self.dimensions) - ties) // 2

    @cached_property
    def _total(self) -> int:
        """Return the sum of all corners' weights, which may exceed 2^63."""
        return self._side * self.weights.true + (self._corners - self._side) * self.weights.other

    @property
    def _corners(self) -> int:
        return 1 << self.dimensions

    @cached_property
    def scale(self) -> float:
        """
        The number that a bit represents: B = total / (binom(d-1, ⌊d/2⌋)·(true - other)).

        For every j, z_j·V_j sums to binom(d-1, ⌊d/2⌋) over the corners z on V's side, to its
        negative over the other side, and to 0 over ties. So E[z_j] = V_j / B.
        """
        true, other = self.weights.true, self.weights.other
        agreement = math.comb(self.dimensions - 1, self.dimensions // 2)
        return self._total / (agreement * (true - other))

    @property
    def spread(self) -> Spread:
        return Spread(level=self.scale**2, slope=0.0, steps=0)

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype([bits.bit_field(self.dimensions)])

    @property
    def reduction(self) -> MatchCountReduction:
        """
        Match count with γ = 2^d·other/total and l = 2^d / (corners on a side), 2 for odd d.

        A report is a uniform corner with probability γ, and otherwise a uniform one on V's side.
        The sides of opposite corners, the worst pair, are disjoint, so the collision is 0.
        """
        return MatchCountReduction.of_support_sets(
            answers=self._corners / self._side,
            local_epsilon=self.local_epsilon,
            blanket=self._corners * self.weights.other / self._total,
            signal=self._side * (self.weights.true - self.weights.other) / self._total,
            independent=False,
        )

    def randomize(self, values: Numbers, rng: np.random.Generator) -> Reports:
        """
        Randomize each user's numbers to a corner, field bits (bytes). Run by the user agent.

        Draws a uniform corner; of it and its opposite, one has weight true, the other weight other,
        and a coin selects one. Together they have weight true + other, but two ties only 2·other,
        so a tie is redrawn with probability (true-other) / (true+other), whatever V is. Cost: a
        32-bit draw and a random bit for each coordinate.
        """
        values = check_numbers(values, self.dimensions)
        reports = np.empty(len(values), dtype=self.report_dtype)
        for part in bits.chunks(len(values), self.dimensions, _CHUNK):
            own = bits.pack(to_grid(values[part], 1, rng))
            corners = np.empty_like(own)
            pending = np.arange(len(own))
            while len(pending):
                drawn, again = self._draw(own[pending], rng)
                corners[pending] = drawn
                pending = pending[again]
            reports["bits"][part] = corners
        return reports

    def _draw(
        self, own: NDArray[np.uint8], rng: np.random.Generator
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return a drawn corner for each user's corner, and the indices of ties to redraw."""
        true, other = self.weights.true, self.weights.other
        used = bits.pack(np.ones((1, self.dimensions), dtype=np.uint8))
        corner = rng.integers(0, 256, size=own.shape, dtype=np.uint8) & used
        apart = np.bitwise_count(corner ^ own).sum(axis=1, dtype=np.int64)
        near = 2 * apart < self.dimensions
        turned = near != exact_coins(true, true + other, near.shape, rng)
        ties = np.flatnonzero(2 * apart == self.dimensions)
        stay = exact_coins(2 * other, true + other, ties.shape, rng)
        return corner ^ (used * turned[:, np.newaxis]), ties[~stay]

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        return bits.spare_bits_clear(reports["bits"], self.dimensions)

    def tally(self, reports: Reports) -> Counts:
        """Count reports, then set bits by coordinate; (1 + dimensions,). Run by the analyzer."""
        check_valid(self.valid(reports), f"a bit is set beyond the first {self.dimensions}")
        set_bits = bits.count_set_bits(reports["bits"], self.dimensions)
        return np.concatenate([np.array([len(reports)], dtype=np.int64), set_bits])

    def estimate(self, cells: Counts) -> Moments:
        n_reports = int(cells[0])
        count = np.full(self.dimensions, float(n_reports))
        first = (2 * cells[1:] - n_reports).astype(np.float64) * self.scale
        totals = np.stack([count, first, count * self.scale**2])
        return self.spread.moments(totals)
