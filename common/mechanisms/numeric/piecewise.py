"""
The piecewise mechanism for a number in -1 .. 1 [WXY+19], on a grid.

It is the square wave's response with another reach: a place near the number's has weight `true`,
any other weight `other`. The paper's band of length C-1 out of 2C, C = (e^(ε/2)+1) / (e^(ε/2)-1),
is 1/(e^(ε/2)+1) of all places. The expected place is linear in the number for every band, and so is
the estimate in the place.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.mechanisms.band_response import BandResponse
from common.mechanisms.base import Counts, Vector
from common.mechanisms.numeric.coded_number import CodedNumber, Spread, Totals
from common.mechanisms.numeric.number import (
    STEPS,
    NumberRequest,
    SpecifiedNumbers,
    check_one_number,
    number_weights,
    to_grid,
    to_spec,
)
from common.mechanisms.reduction import PureReduction, Reduction
from common.mechanisms.weights import ResponseWeights
from common.protocols import NumberMechanismName
from common.task.specs import MAX_WEIGHT_SUM, NumberSpec
from common.task.task import MAX_USERS


def paper_reach(steps: int, local_epsilon: float) -> int:
    """
    Return the reach whose band is nearest to the paper's share of all places [WXY+19].

    A band of w = 2·reach + 1 out of steps + w places is 1/(e^(ε/2)+1) of them at w =
    steps·e^(-ε/2); here w is the nearest odd number.
    """
    return max(0, round((steps * math.exp(-local_epsilon / 2) - 1) / 2))


@dataclass(frozen=True)
class Piecewise(CodedNumber, SpecifiedNumbers):
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
        check_one_number(cls.NAME, wanted.dimensions)
        return cls.for_epsilon(wanted.local_epsilon)

    @classmethod
    def for_epsilon(cls, local_epsilon: float, steps: int = STEPS) -> Self:
        """
        Choose the integers.

        Raises:
            TaskError: local_epsilon is out of range.
        """
        weights = ResponseWeights.for_epsilon(local_epsilon)
        return cls(steps, paper_reach(steps, local_epsilon), weights)

    @classmethod
    def built(cls, spec: NumberSpec, dimensions: int) -> Self:
        """Take the grid, any reach and the odds from a task."""
        check_one_number(cls.NAME, dimensions)
        return cls(spec.steps, spec.reach, number_weights(spec))

    def spec(self, low: float, high: float) -> NumberSpec:
        """State the grid, the reach and the odds."""
        return to_spec(
            self.NAME,
            low,
            high,
            self.report_dtype,
            weights=self.weights,
            steps=self.steps,
            reach=self.reach,
        )

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
        """As of the response; if the bands of the two ends overlap, the local ε only."""
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
