"""
The piecewise mechanism for a number in -1 .. 1 [WXY+19], on a grid, and the hybrid.

It is the square wave's response with another reach: a place near the number's has weight `true`,
any other weight `other`. The paper's band of length C-1 out of 2C, C = (e^(ε/2)+1) / (e^(ε/2)-1),
is 1/(e^(ε/2)+1) of all places. The expected place is linear in the number for every band, and so is
the estimate in the place.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.mechanisms.band_response import BandResponse
from common.mechanisms.base import Counts, Vector
from common.mechanisms.numeric.coded_number import CodedNumber, Duchi, Spread, Totals
from common.mechanisms.numeric.number import (
    STEPS,
    NumberRequest,
    number_weights,
    odds,
    to_grid,
)
from common.mechanisms.reduction import PureReduction, Reduction
from common.mechanisms.weights import ResponseWeights
from common.protocols import NumberMechanismName
from common.task.specs import MAX_WEIGHT_SUM, MIX_SUM, NumberSpec
from common.task.task import MAX_USERS


def paper_reach(steps: int, local_epsilon: float) -> int:
    """
    Return the reach whose band is nearest to the paper's share of all places [WXY+19].

    A band of w = 2·reach + 1 out of steps + w places is 1/(e^(ε/2)+1) of them at w =
    steps·e^(-ε/2); here w is the nearest odd number.
    """
    return max(0, round((steps * math.exp(-local_epsilon / 2) - 1) / 2))


@dataclass(frozen=True)
class Piecewise(CodedNumber):
    """
    Report a place, in or outside the band of the grid point to which the number was rounded.

    A place i among the first steps+1 is the number 2i/steps - 1 shifted by the reach. A report
    stands for (place - middle) / (signal · steps/2), where `signal` is the chance that it was drawn
    from its own band: a report drawn from all places is the middle on average.
    """

    NAME: ClassVar[NumberMechanismName] = "piecewise"

    steps: int
    reach: int
    weights: ResponseWeights

    def __post_init__(self) -> None:
        if self.steps < 2 or self.steps % 2:  # noqa: PLR2004  # an end on either side of the middle
            raise TaskError(f"steps is {self.steps}; a grid has an even number of them, at least 2")
        if self.answers**2 * MAX_USERS > MAX_WEIGHT_SUM:
            raise TaskError(
                f"there are {self.answers} places; with more than "
                f"{math.isqrt(MAX_WEIGHT_SUM // MAX_USERS)} their squares could not be added up"
            )
        _ = self.response

    @classmethod
    def wanting(cls, wanted: NumberRequest) -> Self:
        """Choose the reach of the paper, and the odds closest to e^ε from below."""
        return cls.for_epsilon(wanted.local_epsilon)

    @classmethod
    def for_epsilon(cls, local_epsilon: float, steps: int = STEPS) -> Self:
        """Choose the integers."""
        weights = ResponseWeights.for_epsilon(local_epsilon)
        return cls(steps, paper_reach(steps, local_epsilon), weights)

    @classmethod
    def built(cls, spec: NumberSpec, dimensions: int) -> Self:  # noqa: ARG003  # one
        """Take the grid, any reach and the odds from a task."""
        return cls(spec.steps, spec.reach, number_weights(spec))

    @property
    def integers(self) -> dict[str, int]:
        """The grid, the reach and the odds."""
        return {"steps": self.steps, "reach": self.reach, **odds(self.weights)}

    @cached_property
    def response(self) -> BandResponse:
        """The band response over the steps+1 points of the grid."""
        return BandResponse(self.steps + 1, self.reach, self.weights)

    @property
    def answers(self) -> int:
        """Number of places."""
        return self.steps + 1 + 2 * self.reach

    @property
    def features(self) -> int:
        """Counts, places, and squares of places."""
        return 3

    @property
    def _middle(self) -> int:
        return self.steps // 2 + self.reach

    @cached_property
    def unit(self) -> float:
        """Number for which one place stands: 2 / (steps · signal)."""
        return 2 / (self.steps * self.response.signal)

    @cached_property
    def spread(self) -> Spread:
        """
        E[r²] = t²/signal + level, t on the grid.

        In places from the middle: with chance `signal` uniform over w places around t·steps/2, of
        variance (w²-1)/12, else uniform over all D, of second moment (D²-1)/12.
        """
        signal = self.response.signal
        near, any_ = ((n**2 - 1) / 12 for n in (self.response.width, self.response.places))
        return Spread(
            level=(signal * near + (1 - signal) * any_) * self.unit**2,
            slope=1 / signal,
            steps=self.steps,
        )

    @property
    def reduction(self) -> Reduction:
        """As for the response; if the bands of the two ends overlap, the local ε only."""
        return self.response.reduction or PureReduction(local_epsilon=self.local_epsilon)

    def encode(self, numbers: Vector, rng: np.random.Generator) -> NDArray[np.int64]:
        """Round each number to the grid, and answer for its point."""
        return self.response.randomize(to_grid(numbers, self.steps, rng), rng)

    def parts(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return 1, the place, and its square."""
        return np.stack([np.ones_like(codes), codes, codes**2])

    def totals(self, sums: Counts) -> Totals:
        """
        Centre sums in integers, and scale them.

        With D places and n reports no intermediate number exceeds D²·n.
        """
        count, places, squares = sums[:, 0], sums[:, 1], sums[:, 2]
        first = (places - self._middle * count).astype(np.float64)
        second = squares - self._middle * (2 * places - self._middle * count)
        return Totals(
            count=count.astype(np.float64),
            first=first * self.unit,
            second=second * self.unit**2,
        )


LEAST_EPSILON: Final = math.log(
    (-5 + 2 * math.cbrt(6353 - 405 * math.sqrt(241)) + 2 * math.cbrt(6353 + 405 * math.sqrt(241)))
    / 27
)
"""ε* ≈ .61: up to it Duchi's bit alone has the least worst-case variance [WXY+19]."""


def paper_weight(local_epsilon: float) -> int:
    """Return the weight of the piecewise mechanism, of MIX_SUM: 1 - e^(-ε/2), or 0 up to ε*."""
    if local_epsilon <= LEAST_EPSILON:
        return 0
    return round(-math.expm1(-local_epsilon / 2) * MIX_SUM)


@dataclass(frozen=True)
class Hybrid(CodedNumber):
    """
    Report Duchi's bit as code 0 or 1, or place j of the piecewise mechanism as code 2+j [WXY+19].

    The choice between the two is independent of the number, and the report states it. Both have the
    odds true : other, and so has the hybrid. With the paper's chance of the piecewise mechanism the
    variance is the same for every number.

    With chance 0 of the piecewise mechanism there is no grid and no reach, and there are two codes.
    """

    NAME: ClassVar[NumberMechanismName] = "hybrid"

    steps: int
    reach: int
    weights: ResponseWeights
    piecewise_weight: int
    """Probability of the piecewise mechanism, in units of 1 / MIX_SUM."""

    def __post_init__(self) -> None:
        if not 0 <= self.piecewise_weight < MIX_SUM:
            raise TaskError(
                f"piecewise_weight is {self.piecewise_weight}; "
                f"a hybrid's must lie between 0 and {MIX_SUM - 1}"
            )
        if self.piecewise_weight == 0 and (self.steps, self.reach) != (0, 0):
            raise TaskError(
                f"steps is {self.steps} and reach {self.reach}; where piecewise_weight is 0 "
                "both must be 0"
            )
        _ = self._piecewise

    @classmethod
    def wanting(cls, wanted: NumberRequest) -> Self:
        """Choose the mixture of the paper."""
        return cls.for_epsilon(wanted.local_epsilon)

    @classmethod
    def for_epsilon(cls, local_epsilon: float, steps: int = STEPS) -> Self:
        """Choose the integers."""
        weights = ResponseWeights.for_epsilon(local_epsilon)
        often = paper_weight(local_epsilon)
        if often == 0:
            return cls(0, 0, weights, 0)
        return cls(steps, paper_reach(steps, local_epsilon), weights, often)

    @classmethod
    def built(cls, spec: NumberSpec, dimensions: int = 1) -> Self:  # noqa: ARG003  # one
        """Take the integers of one answer from a task, with any mixture."""
        return cls(spec.steps, spec.reach, number_weights(spec), spec.piecewise_weight)

    @property
    def integers(self) -> dict[str, int]:
        """The integers of both parts."""
        grid = {"steps": self.steps, "reach": self.reach}
        return {**grid, "piecewise_weight": self.piecewise_weight, **odds(self.weights)}

    @cached_property
    def _duchi(self) -> Duchi:
        return Duchi(self.weights)

    @cached_property
    def _piecewise(self) -> Piecewise | None:
        if self.piecewise_weight == 0:
            return None
        return Piecewise(self.steps, self.reach, self.weights)

    @property
    def answers(self) -> int:
        """Two bits and all places."""
        return 2 if self._piecewise is None else 2 + self._piecewise.answers

    @property
    def features(self) -> int:
        """The features of both parts."""
        return 2 if self._piecewise is None else 2 + self._piecewise.features

    @cached_property
    def spread(self) -> Spread:
        """Mixture of the spreads of both parts."""
        duchi = self._duchi.spread
        if self._piecewise is None:
            return duchi
        often, other = self.piecewise_weight / MIX_SUM, self._piecewise.spread
        return Spread(
            level=often * other.level + (1 - often) * duchi.level,
            slope=often * other.slope,
            steps=self.steps,
        )

    @property
    def reduction(self) -> Reduction:
        """The local ε only; for Duchi's bit alone its reduction."""
        if self._piecewise is None:
            return self._duchi.reduction
        return PureReduction(local_epsilon=self.local_epsilon)

    def encode(self, numbers: Vector, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the part that answers for each number, and answer."""
        if self._piecewise is None:
            return self._duchi.encode(numbers, rng)
        draw = rng.integers(0, MIX_SUM, size=numbers.shape, dtype=np.int64)
        by_place = draw < self.piecewise_weight
        codes = np.empty(numbers.shape, dtype=np.int64)
        codes[by_place] = 2 + self._piecewise.encode(numbers[by_place], rng)
        codes[~by_place] = self._duchi.encode(numbers[~by_place], rng)
        return codes

    def parts(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the parts of bits, 0 for a place, then those of places, 0 for a bit."""
        bits = self._duchi.parts(codes)
        if self._piecewise is None:
            return bits
        places = self._piecewise.parts(codes - 2) * (codes >= 2)  # noqa: PLR2004  # bits
        return np.concatenate([bits, places])

    def totals(self, sums: Counts) -> Totals:
        """Add the totals of both parts."""
        bits = self._duchi.totals(sums[:, :2])
        if self._piecewise is None:
            return bits
        places = self._piecewise.totals(sums[:, 2:])
        return Totals(
            count=bits.count + places.count,
            first=bits.first + places.first,
            second=bits.second + places.second,
        )
