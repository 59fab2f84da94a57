"""
The hybrid mechanism for a number in -1 .. 1 [WXY+19]: the piecewise mechanism, or Duchi's bit.

The choice between the two is independent of the number, and the report states it. Both have the
odds true : other, and so has the hybrid. With the paper's chance of the piecewise mechanism the
variance is the same for every number.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.mechanisms.base import Counts, Vector
from common.mechanisms.numeric.coded_number import CodedNumber, Spread, Totals
from common.mechanisms.numeric.duchi import Duchi
from common.mechanisms.numeric.number import (
    STEPS,
    NumberRequest,
    SpecifiedNumbers,
    check_one_number,
    number_weights,
    to_spec,
)
from common.mechanisms.numeric.piecewise import Piecewise, paper_reach
from common.mechanisms.reduction import PureReduction, Reduction
from common.mechanisms.weights import ResponseWeights
from common.protocols import NumberMechanismName
from common.task.specs import MIX_SUM, NumberSpec

LEAST_EPSILON: Final = math.log(
    (-5 + 2 * math.cbrt(6353 - 405 * math.sqrt(241)) + 2 * math.cbrt(6353 + 405 * math.sqrt(241)))
    / 27
)
"""ε* ≈ .61: up to it Duchi's bit alone has the least worst-case variance [WXY+19]."""


def paper_weight(local_epsilon: float) -> int:
    """Return the chance of the piecewise mechanism, of MIX_SUM: 1 - e^(-ε/2), or 0 up to ε*."""
    if local_epsilon <= LEAST_EPSILON:
        return 0
    return round(-math.expm1(-local_epsilon / 2) * MIX_SUM)


@dataclass(frozen=True)
class Hybrid(CodedNumber, SpecifiedNumbers):
    """
    Report Duchi's bit as code 0 or 1, or place j of the piecewise mechanism as code 2+j.

    With chance 0 of the piecewise mechanism there is no grid and no reach, and there are two codes.
    """

    NAME: ClassVar[NumberMechanismName] = "hybrid"

    steps: int
    reach: int
    weights: ResponseWeights
    piecewise_weight: int
    """Of MIX_SUM."""

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
        often = paper_weight(local_epsilon)
        if often == 0:
            return cls(0, 0, weights, 0)
        return cls(steps, paper_reach(steps, local_epsilon), weights, often)

    @classmethod
    def of_parts(cls, spec: NumberSpec) -> Self:
        """Take the integers of one answer from a task with any number of dimensions."""
        return cls(spec.steps, spec.reach, number_weights(spec), spec.piecewise_weight)

    @classmethod
    def built(cls, spec: NumberSpec, dimensions: int) -> Self:
        """Take the integers from a task, with any mixture."""
        check_one_number(cls.NAME, dimensions)
        return cls.of_parts(spec)

    def spec(self, low: float, high: float) -> NumberSpec:
        """State the integers of both parts."""
        return to_spec(
            self.NAME,
            low,
            high,
            self.report_dtype,
            weights=self.weights,
            steps=self.steps,
            reach=self.reach,
            piecewise_weight=self.piecewise_weight,
        )

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
