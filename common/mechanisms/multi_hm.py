"""Multi-HM [WXY+19]: the hybrid mechanism of a few coordinates, drawn at random."""

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from common.mechanisms.hybrid import Hybrid
from common.mechanisms.number import WantedNumbers
from common.mechanisms.number_integers import SpecifiedNumbers, stated
from common.mechanisms.sampled_coordinates import SampledCoordinates, equal_share
from common.number_spec import NumberSpec
from common.protocols import NumberMechanismName

EPSILON_EACH: Final = 2.5
"""ε that is worth another coordinate [WXY+19]."""


def paper_sample(dimensions: int, local_epsilon: float) -> int:
    """Give how many coordinates a report tells of: k = max(1, min(d, ⌊ε / 2.5⌋))."""
    return max(1, min(dimensions, int(local_epsilon // EPSILON_EACH)))


@dataclass(frozen=True)
class MultiHm(SampledCoordinates[Hybrid], SpecifiedNumbers):
    """K coordinates, each by the hybrid at ε/k; a report stands for d/k times its codes."""

    NAME: ClassVar[NumberMechanismName] = "multi-hm"

    @classmethod
    def for_epsilon(cls, dimensions: int, local_epsilon: float) -> Self:
        """
        Choose the integers.

        Raises:
            TaskError: local_epsilon or dimensions are out of range.
        """
        sampled = paper_sample(dimensions, local_epsilon)
        return cls(dimensions, sampled, Hybrid.for_epsilon(equal_share(local_epsilon, sampled)))

    @classmethod
    def wanting(cls, wanted: WantedNumbers) -> Self:
        """Take the paper's number of coordinates."""
        return cls.for_epsilon(wanted.dimensions, wanted.local_epsilon)

    @classmethod
    def built(cls, spec: NumberSpec, dimensions: int) -> Self:
        """Take the integers of a task; any number of coordinates will do."""
        return cls(dimensions, spec.sampled, Hybrid.of_parts(spec))

    def spec(self, low: float, high: float) -> NumberSpec:
        """State the integers of the hybrid, and how many coordinates it answers for."""
        return stated(
            self.NAME,
            low,
            high,
            self.report_dtype,
            weights=self.answer.weights,
            steps=self.answer.steps,
            reach=self.answer.reach,
            piecewise_weight=self.answer.piecewise_weight,
            sampled=self.sampled,
        )
