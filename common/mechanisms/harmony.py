"""Harmony [NXY+16]: Duchi's bit of one coordinate, drawn at random, at the whole ε."""

from dataclasses import dataclass
from typing import ClassVar, Self

from common.mechanisms.duchi import Duchi
from common.mechanisms.number import WantedNumbers
from common.mechanisms.number_integers import SpecifiedNumbers, number_weights, stated
from common.mechanisms.response_weights import ResponseWeights
from common.mechanisms.sampled_coordinates import SampledCoordinates
from common.number_spec import NumberSpec
from common.protocols import NumberMechanismName


@dataclass(frozen=True)
class Harmony(SampledCoordinates[Duchi], SpecifiedNumbers):
    """One coordinate and its bit, which stands for ±d·C."""

    NAME: ClassVar[NumberMechanismName] = "harmony"

    @classmethod
    def wanting(cls, wanted: WantedNumbers) -> Self:
        """Take the odds that come closest to e^ε."""
        return cls(wanted.dimensions, 1, Duchi(ResponseWeights.for_epsilon(wanted.local_epsilon)))

    @classmethod
    def built(cls, spec: NumberSpec, dimensions: int) -> Self:
        """Take the odds of a task."""
        return cls(dimensions, 1, Duchi(number_weights(spec)))

    def spec(self, low: float, high: float) -> NumberSpec:
        """State the odds: there is nothing else."""
        return stated(self.NAME, low, high, self.report_dtype, weights=self.answer.weights)
