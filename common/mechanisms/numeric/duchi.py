"""
Duchi's bit of a number in -1 .. 1 [DJW18]; Harmony in one dimension [NXY+16].

The number is rounded at random to an end, keeping its mean, and Warner's randomized response
reports which. A bit stands for ±C, C = (e^ε+1)/(e^ε-1).
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Counts, Vector
from common.mechanisms.numeric.coded_number import CodedNumber, Spread, Totals
from common.mechanisms.numeric.number import (
    NumberRequest,
    SpecifiedNumbers,
    check_one_number,
    number_weights,
    to_grid,
    to_spec,
)
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.weights import ResponseWeights
from common.protocols import NumberMechanismName
from common.task.specs import NumberSpec


@dataclass(frozen=True)
class Duchi(CodedNumber, SpecifiedNumbers):
    """
    Report the end to which a number was rounded with weight `true`, or the other with weight
    `other`.

    Pr[+] = 1/2 + t·(true - other) / 2(true + other), which lies between its values at the ends.
    """

    NAME: ClassVar[NumberMechanismName] = "duchi"

    weights: ResponseWeights

    @classmethod
    def wanting(cls, wanted: NumberRequest) -> Self:
        """Choose the odds closest to e^ε from below."""
        check_one_number(cls.NAME, wanted.dimensions)
        return cls(ResponseWeights.for_epsilon(wanted.local_epsilon))

    @classmethod
    def built(cls, spec: NumberSpec, dimensions: int) -> Self:
        """Take the odds from a task."""
        check_one_number(cls.NAME, dimensions)
        return cls(number_weights(spec))

    def spec(self, low: float, high: float) -> NumberSpec:
        """State the odds."""
        return to_spec(self.NAME, low, high, self.report_dtype, weights=self.weights)

    @property
    def answers(self) -> int:
        """Down and up."""
        return 2

    @property
    def features(self) -> int:
        """Counts of down and up."""
        return 2

    @property
    def scale(self) -> float:
        """C = (true + other) / (true - other), the number for which a bit stands."""
        true, other = self.weights.true, self.weights.other
        return (true + other) / (true - other)

    @property
    def spread(self) -> Spread:
        """The square of ±C is C² for every number."""
        return Spread(level=self.scale**2, slope=0.0, steps=0)

    @property
    def reduction(self) -> MatchCountReduction:
        """Randomized response over two answers; the two ends are the least private numbers."""
        return MatchCountReduction.for_weights(answers=2, weights=self.weights, hashed=False)

    def encode(self, numbers: Vector, rng: np.random.Generator) -> NDArray[np.int64]:
        """Round each number to 0 or 1, its end of the range, and randomize that."""
        return self.weights.respond(to_grid(numbers, 1, rng), 2, rng)

    def parts(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return 1 for down, and 1 for up."""
        return np.stack([codes == 0, codes == 1]).astype(np.int64)

    def totals(self, sums: Counts) -> Totals:
        """Multiply bits by ±C."""
        count = (sums[:, 0] + sums[:, 1]).astype(np.float64)
        return Totals(
            count=count,
            first=(sums[:, 1] - sums[:, 0]).astype(np.float64) * self.scale,
            second=count * self.scale**2,
        )
