"""
MeanEST, the mechanism of Duchi, Jordan and Wainwright for several numbers at once [DJW18].

The numbers are rounded to a corner V of the cube; the report is a corner z of which each has weight
`true` on V's side of the cube, z·V > 0, and `other` elsewhere. A bit stands for ±B.

With an even number of coordinates there are corners on neither side, z·V = 0. As printed both sides
T contain these ties, so that each of them has chance 1/|T|, and a corner on the wrong side
1/(e^ε+1)|T|: the report gives away ln(e^ε+1), more than ε. Here ties have the weight of the wrong
side. Then no odds exceed true : other, and B is smaller too, since ties tell nothing.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import ReportError
from common.mechanisms.base import Counts, Reports, Vector
from common.mechanisms.numeric.coded_number import Spread, Totals
from common.mechanisms.numeric.number import (
    Moments,
    NumberRequest,
    Numbers,
    SpecifiedNumbers,
    check_numbers,
    number_weights,
    to_grid,
    to_spec,
)
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.sampling import exact_coins
from common.mechanisms.weights import OddsOfWeights, ResponseWeights
from common.protocols import NumberMechanismName
from common.task.ranges import within
from common.task.specs import MAX_DIMENSIONS, NumberSpec

_CHUNK: Final = 1 << 20
"""Coordinates that are drawn or counted at a time, so that memory stays bounded."""


@dataclass(frozen=True)
class MeanEst(OddsOfWeights, SpecifiedNumbers):
    """
    One bit a coordinate, least significant first; a corner of the cube on the own side, or not.

    Bits beyond the last coordinate are always 0, and there is at least one, so that no report is
    the null report.
    """

    NAME: ClassVar[NumberMechanismName] = "mean-est"

    dimensions: int
    weights: ResponseWeights

    def __post_init__(self) -> None:
        within("dimensions", self.dimensions, 1, MAX_DIMENSIONS)

    @classmethod
    def wanting(cls, wanted: NumberRequest) -> Self:
        """Take the odds that come closest to e^ε."""
        return cls(wanted.dimensions, ResponseWeights.for_epsilon(wanted.local_epsilon))

    @classmethod
    def built(cls, spec: NumberSpec, dimensions: int) -> Self:
        """Take the odds of a task."""
        return cls(dimensions, number_weights(spec))

    def spec(self, low: float, high: float) -> NumberSpec:
        """State the odds: there is nothing else."""
        return to_spec(self.NAME, low, high, self.report_dtype, weights=self.weights)

    @cached_property
    def _side(self) -> int:
        """How many corners are on the side of one: half of those that are no ties."""
        ties = 0 if self.dimensions % 2 else math.comb(self.dimensions, self.dimensions // 2)
        return ((1 << self.dimensions) - ties) // 2

    @cached_property
    def _total(self) -> int:
        """All corners' weights, which are far beyond what is drawn at once."""
        return self._side * self.weights.true + (self._corners - self._side) * self.weights.other

    @property
    def _corners(self) -> int:
        return 1 << self.dimensions

    @cached_property
    def scale(self) -> float:
        """
        B, what a bit stands for: total / (binom(d-1, ⌊d/2⌋) · (true - other)).

        For every j the products z_j·V_j add to binom(d-1, ⌊d/2⌋) over the corners on V's side, to
        as much below 0 over those on the other side, and to 0 over ties.
        """
        true, other = self.weights.true, self.weights.other
        agreement = math.comb(self.dimensions - 1, self.dimensions // 2)
        return self._total / (agreement * (true - other))

    @property
    def spread(self) -> Spread:
        """A bit stands for ±B, whose square is B² whatever the number."""
        return Spread(level=self.scale**2, slope=0.0, steps=0)

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """A bit a coordinate, and at least one that is 0, in whole bytes."""
        return np.dtype([("bits", "u1", (self.dimensions // 8 + 1,))])

    @property
    def reduction(self) -> MatchCountReduction:
        """
        A report is a uniform corner with γ = 2^d·other/total, and else a uniform one on V's side.

        So l = 2^d / the corners on a side, which is 2 for an odd number of coordinates. The sides
        of opposite corners share nothing: collision 0, the worst of all pairs.
        """
        return MatchCountReduction.of_intervals(
            answers=self._corners / self._side,
            local_epsilon=self.local_epsilon,
            blanket=self._corners * self.weights.other / self._total,
            signal=self._side * (self.weights.true - self.weights.other) / self._total,
        )

    def randomize(self, values: Numbers, rng: np.random.Generator) -> Reports:
        """
        Randomize each person's numbers. Run by the user agent.

        A uniform corner and the one opposite to it have the weights true and other, in either
        order: one of the two is taken. A tie has the weight 2·other beside them: it is drawn again
        with chance (true-other) / (true+other). How often says nothing of V.

        Args:
            values: Shape (n, dimensions), each in -1 .. 1.
            rng: Source of randomness.

        Returns:
            n reports, field bits (bytes).

        Raises:
            ValueRangeError: A number is not in -1 .. 1, or there are more or fewer.

        Cost: a 32-bit draw and a bit a coordinate.
        """
        check_numbers(values, self.dimensions)
        reports = np.empty(len(values), dtype=self.report_dtype)
        for part in self._parts(len(values)):
            own = self._packed(to_grid(values[part], 1, rng))
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
        """Draw a corner for each; say which of them are ties that do not stay."""
        true, other = self.weights.true, self.weights.other
        used = self._packed(np.ones((1, self.dimensions), dtype=np.uint8))
        corner = rng.integers(0, 256, size=own.shape, dtype=np.uint8) & used
        apart = np.bitwise_count(corner ^ own).sum(axis=1, dtype=np.int64)
        near = 2 * apart < self.dimensions
        turned = near != exact_coins(true, true + other, near.shape, rng)
        ties = np.flatnonzero(2 * apart == self.dimensions)
        stay = exact_coins(2 * other, true + other, ties.shape, rng)
        return corner ^ (used * turned[:, np.newaxis]), ties[~stay]

    def _parts(self, count: int) -> Iterator[slice]:
        size = max(1, _CHUNK // self.dimensions)
        return (slice(start, start + size) for start in range(0, count, size))

    def _packed(self, bits: NDArray[Any]) -> NDArray[np.uint8]:
        packed = np.zeros((len(bits), self.dimensions // 8 + 1), dtype=np.uint8)
        found = np.packbits(bits.astype(np.uint8), axis=1, bitorder="little")
        packed[:, : found.shape[1]] = found
        return packed

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Say which reports have no bit set beyond the last coordinate. Run by the analyzer."""
        spare = 0xFF << self.dimensions % 8 & 0xFF
        fine: NDArray[np.bool_] = (reports["bits"][:, -1] & spare) == 0
        return fine

    def tally(self, reports: Reports) -> Counts:
        """
        Count reports, and the set bits of each coordinate. Run by the analyzer.

        Returns:
            Shape (1 + dimensions,).

        Raises:
            ReportError: A bit beyond the last coordinate is set.

        Cost: one pass over all bits; memory for a million of them.
        """
        if not self.valid(reports).all():
            raise ReportError(f"a bit is set beyond the first {self.dimensions}")
        cells = np.zeros(1 + self.dimensions, dtype=np.int64)
        cells[0] = len(reports)
        for part in self._parts(len(reports)):
            cells[1:] += np.unpackbits(
                reports["bits"][part], axis=1, count=self.dimensions, bitorder="little"
            ).sum(axis=0, dtype=np.int64)
        return cells

    def estimate(self, cells: Counts) -> Moments:
        """Estimate the means, without bias, from what `tally` gave. Run by the analyzer."""
        n_reports = int(cells[0])
        count = np.full(self.dimensions, float(n_reports))
        first = (2 * cells[1:] - n_reports).astype(np.float64) * self.scale
        totals = Totals(count=count, first=first, second=count * self.scale**2)
        return self.spread.moments(totals, n_reports, sampling=1.0)

    def variance(self, values: Numbers) -> Vector:
        """Give the exact variance of the estimated means for these people: Σ(B² - t²) / n²."""
        return self.spread.variance(values, sampling=1.0)
