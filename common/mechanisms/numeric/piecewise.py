"""
The piecewise mechanism for a number in -1 .. 1 [WXY+19], on a grid, and the hybrid.

The response is the square wave's with another reach: a place near the number has weight `true`, any
other place has weight `other`. With C = (e^(ε/2)+1) / (e^(ε/2)-1), the paper's band has length C-1
out of 2C, a share of 1/(e^(ε/2)+1) of all places. For any band the expected place is linear in the
number, so the estimate is linear in the place.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.limits import MAX_USERS
from shuffledp.common.mechanisms.band_response import BandResponse
from shuffledp.common.mechanisms.base import Counts, Vector
from shuffledp.common.mechanisms.numeric.coded_number import CodedNumber, Duchi, Spread, Totals
from shuffledp.common.mechanisms.numeric.number import STEPS, to_grid
from shuffledp.common.mechanisms.reduction import PureReduction, Reduction
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.protocols import NumberMechanismName
from shuffledp.common.task.specs import MAX_WEIGHT_SUM, MIX_SUM


def paper_reach(steps: int, local_epsilon: float) -> int:
    """
    Return the reach whose band is nearest to the paper's share of all places [WXY+19].

    A band of w = 2·reach + 1 places out of steps + w has the share 1/(e^(ε/2)+1) if
    w = steps·e^(-ε/2); w is the nearest odd number.
    """
    return max(0, round((steps * math.exp(-local_epsilon / 2) - 1) / 2))


@dataclass(frozen=True)
class Piecewise(CodedNumber):
    """
    Report a place inside or outside the band of the grid point to which the number was rounded.

    The band of grid point i, the number 2i/steps - 1, has place i + reach at its centre. A report
    represents (place - middle) / (signal · steps/2), where `signal` is the probability of a draw
    from this band alone: a report drawn from all places is the middle on average.
    """

    NAME: ClassVar[NumberMechanismName] = "piecewise"
    FACTORS: ClassVar[int] = 1

    steps: int
    """Intervals of the grid, even."""
    reach: int
    """b, at least 0."""
    weights: ResponseWeights

    def __post_init__(self) -> None:
        if self.steps < 2 or self.steps % 2:  # noqa: PLR2004  # an end on either side of the middle
            raise TaskError(f"steps is {self.steps}; it must be an even number of at least 2")
        if self.answers**2 * MAX_USERS > MAX_WEIGHT_SUM:
            raise TaskError(
                f"there are {self.answers} places; there must be at most "
                f"{math.isqrt(MAX_WEIGHT_SUM // MAX_USERS)}, so that their squares can be summed"
            )
        _ = self.response

    @classmethod
    def for_epsilon(cls, dimensions: int, local_epsilon: float) -> Self:
        """Choose the reach of [WXY+19], and the weights with a ratio closest to e^ε from below."""
        weights = ResponseWeights.for_epsilon(local_epsilon)
        return cls(STEPS, paper_reach(STEPS, local_epsilon), weights)

    @cached_property
    def response(self) -> BandResponse:
        """The band response over the steps+1 points of the grid."""
        return BandResponse(self.steps + 1, self.reach, self.weights)

    @property
    def answers(self) -> int:
        return self.steps + 1 + 2 * self.reach

    features = 3
    """Three: a count, the sum of places, and the sum of their squares."""

    @property
    def _middle(self) -> int:
        return self.steps // 2 + self.reach

    @cached_property
    def unit(self) -> float:
        """Number that one place represents: 2 / (steps · signal)."""
        return 2 / (self.steps * self.response.signal)

    @cached_property
    def spread(self) -> Spread:
        """
        Expected square of a report's number: t²/signal + level, for a number t on the grid.

        In places from the middle a report is, with probability `signal`, uniform over w places
        around t·steps/2, of variance (w²-1)/12; otherwise uniform over all D places, of second
        moment (D²-1)/12.
        """
        signal = self.response.signal
        near, anywhere = ((n**2 - 1) / 12 for n in (self.response.width, self.response.places))
        return Spread(
            level=(signal * near + (1 - signal) * anywhere) * self.unit**2,
            slope=1 / signal,
            steps=self.steps,
        )

    @property
    def reduction(self) -> Reduction:
        """Reduction of the response, or the local ε alone if the bands of the two ends overlap."""
        return self.response.reduction or PureReduction(local_epsilon=self.local_epsilon)

    def encode(self, numbers: Vector, rng: np.random.Generator) -> NDArray[np.int64]:
        return self.response.respond(to_grid(numbers, self.steps, rng), rng)

    def parts(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.stack([np.ones_like(codes), codes, codes**2])

    def totals(self, sums: Counts) -> Totals:
        """Centre the integer sums, below D²·n < 2^63 for D places, n reports; then scale."""
        count, places, squares = sums.T
        first = places - self._middle * count
        second = squares - self._middle * (2 * places - self._middle * count)
        return np.stack([count.astype(np.float64), first * self.unit, second * self.unit**2])


HYBRID_THRESHOLD: Final = math.log(
    (-5 + 2 * math.cbrt(6353 - 405 * math.sqrt(241)) + 2 * math.cbrt(6353 + 405 * math.sqrt(241)))
    / 27
)
"""ε* ≈ .61, up to which Duchi's bit alone has the least worst-case variance [WXY+19]."""


def paper_weight(local_epsilon: float) -> int:
    """Return MIX_SUM times the share of the piecewise mechanism: 1 - e^(-ε/2), or 0 up to ε*."""
    if local_epsilon <= HYBRID_THRESHOLD:
        return 0
    return round(-math.expm1(-local_epsilon / 2) * MIX_SUM)


@dataclass(frozen=True)
class Hybrid(CodedNumber):
    """
    Report Duchi's bit as code 0 or 1, or place j of the piecewise mechanism as code 2+j [WXY+19].

    The choice between the two is independent of the number and visible in the report. Both parts
    have the odds true : other, and so has the hybrid. With the paper's mixture the variance is the
    same for every number.

    Without the piecewise mechanism (weight 0) there are two codes, and steps and reach are 0.
    """

    NAME: ClassVar[NumberMechanismName] = "hybrid"
    FACTORS: ClassVar[int] = 1

    steps: int
    reach: int
    weights: ResponseWeights
    piecewise_weight: int
    """Probability of the piecewise mechanism, in units of 1 / MIX_SUM."""

    def __post_init__(self) -> None:
        if self.piecewise_weight == 0 and (self.steps, self.reach) != (0, 0):
            raise TaskError(
                f"steps is {self.steps} and reach {self.reach}; both must be 0 "
                "if piecewise_weight is 0"
            )
        _ = self._both

    @classmethod
    def for_epsilon(cls, dimensions: int, local_epsilon: float) -> Self:
        weights = ResponseWeights.for_epsilon(local_epsilon)
        piecewise_weight = paper_weight(local_epsilon)
        if piecewise_weight == 0:
            return cls(0, 0, weights, 0)
        return cls(STEPS, paper_reach(STEPS, local_epsilon), weights, piecewise_weight)

    @cached_property
    def _both(self) -> tuple[CodedNumber, ...]:
        """Duchi's bit and, unless its weight is 0, the piecewise mechanism; codes in this order."""
        bit = Duchi(self.weights)
        if self.piecewise_weight == 0:
            return (bit,)
        return bit, Piecewise(self.steps, self.reach, self.weights)

    @property
    def answers(self) -> int:
        return sum(each.answers for each in self._both)

    @property
    def features(self) -> int:
        return sum(each.features for each in self._both)

    @cached_property
    def spread(self) -> Spread:
        share = self.piecewise_weight / MIX_SUM
        parts = [*zip((1 - share, share), (each.spread for each in self._both), strict=False)]
        return Spread(
            level=sum(chance * each.level for chance, each in parts),
            slope=sum(chance * each.slope for chance, each in parts),
            steps=self.steps,
        )

    @property
    def reduction(self) -> Reduction:
        """The local ε alone; without the piecewise mechanism, the reduction of Duchi's bit."""
        if self.piecewise_weight == 0:
            return Duchi(self.weights).reduction
        return PureReduction(local_epsilon=self.local_epsilon)

    def encode(self, numbers: Vector, rng: np.random.Generator) -> NDArray[np.int64]:
        bit, *places = self._both
        if not places:
            return bit.encode(numbers, rng)
        draw = rng.integers(0, MIX_SUM, size=numbers.shape, dtype=np.int64)
        by_place = draw < self.piecewise_weight
        codes = np.empty(numbers.shape, dtype=np.int64)
        codes[by_place] = 2 + places[0].encode(numbers[by_place], rng)
        codes[~by_place] = bit.encode(numbers[~by_place], rng)
        return codes

    def parts(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the integers of bits (0 for a place), then those of places (0 for a bit)."""
        bit, *places = self._both
        of_places = [each.parts(codes - 2) * (codes >= 2) for each in places]  # noqa: PLR2004  # bits
        return np.concatenate([bit.parts(codes), *of_places])

    def totals(self, sums: Counts) -> Totals:
        bit, *places = self._both
        return sum((each.totals(sums[:, 2:]) for each in places), bit.totals(sums[:, :2]))
