"""A mechanism for numbers as a task states it: the range, the grid, and the integer weights."""

import math
from dataclasses import dataclass
from typing import Final, get_args

from common.errors import TaskError
from common.mechanism_spec import MAX_REPORT_BYTES, MAX_WEIGHT_SUM
from common.protocols import NumberMechanismName
from common.ranges import between, one_of, within

MAX_DIMENSIONS: Final = 8192
"""Most numbers that one person may be asked for."""
MAX_BOUND: Final = 1e12
"""Largest number, to either side of 0, that a range may reach."""
_LEAST_WIDTH: Final = 1e-6
"""Relative width of a range."""
MAX_STEPS: Final = 2**20
MIX_SUM: Final = 2**32
"""What the weights of a hybrid's two parts add to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberSpec:
    """
    A mechanism for one number, or for several, all in one range.

    A number is moved to the nearest grid points, `steps` intervals from low to high, at random and
    so that its mean stays. What a mechanism does not use is 0, and 1 of `sampled`.
    """

    name: NumberMechanismName
    low: float
    high: float
    """Of every number; what lies outside is refused on the device."""
    steps: int
    """Intervals of the grid; even, so that the middle of the range lies on it. 0 where a number
    goes to one of the ends at once, and there is no grid."""
    true_weight: int
    other_weight: int
    """The odds of one coordinate's answer: e^(local ε / sampled) at most. 0 and 0 for Laplace."""
    scale: int
    """Of Laplace noise, in steps: a whole number."""
    reach: int
    """Of the piecewise mechanism's band, in steps to either side."""
    piecewise_weight: int
    """How often, of MIX_SUM, a hybrid answers by the piecewise mechanism."""
    sampled: int
    """Coordinates that a report tells of."""
    projected: int
    """Dimensions that vectors are projected to at random, before anything else."""
    report_bytes: int

    def __post_init__(self) -> None:
        one_of("mechanism", self.name, get_args(NumberMechanismName))
        check_range(self.low, self.high)
        within("steps", self.steps, 0, MAX_STEPS)
        if self.steps % 2:
            raise TaskError(f"steps is {self.steps}; it must be even")
        within("other_weight", self.other_weight, 0, MAX_WEIGHT_SUM)
        within("true_weight", self.true_weight, self.other_weight, MAX_WEIGHT_SUM)
        within("scale", self.scale, 0, 2**40)
        within("reach", self.reach, 0, MAX_STEPS)
        within("piecewise_weight", self.piecewise_weight, 0, MIX_SUM)
        within("sampled", self.sampled, 1, MAX_DIMENSIONS)
        within("projected", self.projected, 0, MAX_DIMENSIONS)
        within("report_bytes", self.report_bytes, 1, MAX_REPORT_BYTES)

    @property
    def noiseless(self) -> bool:
        """Never: a number always goes with noise."""
        return False


def check_range(low: float, high: float) -> None:
    """
    Check a range of numbers: that floats can tell its numbers apart, and have one form of its ends.

    Raises:
        TaskError: An end is no number, too far out or -0.0, or they are not far enough apart.
    """
    for name, end in (("low", low), ("high", high)):
        between(name, end, -MAX_BOUND, MAX_BOUND)
        if end == 0 and math.copysign(1, end) < 0:
            raise TaskError(f"{name} is -0.0; write 0.0")
    if not low < high:
        raise TaskError(f"low is {low} and high {high}; low must be below high")
    least = _LEAST_WIDTH * max(abs(low), abs(high), _LEAST_WIDTH)
    if high - low < least:
        raise TaskError(
            f"low is {low} and high {high}; they must be at least {least:g} apart, so that numbers "
            "between them can be told apart"
        )
