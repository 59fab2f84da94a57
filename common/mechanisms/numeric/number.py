"""What every mechanism for numbers offers: one number of a person, or several, in -1 .. 1 here."""

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError, ValueRangeError
from common.mechanisms.base import Counts, Randomizer, Reports, Vector
from common.mechanisms.weights import ResponseWeights
from common.protocols import NumberMechanismName
from common.task.ranges import within
from common.task.specs import MAX_DIMENSIONS, NumberSpec
from common.task.task import Task, check_local_epsilon

Numbers = NDArray[np.float64]
"""Values of n people: shape (n, dimensions), each in -1 .. 1."""

STEPS: Final = 4096
"""Intervals of the grid that a mechanism is specified with; a task may say another number. Rounding
to this one adds a variance of 6e-8 at most, far below that of any noise."""
FRACTION_BITS: Final = 32
"""How finely the place of a number between two grid points is resolved, in random bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRequest:
    """A mechanism for numbers by name, and what its integers follow from."""

    name: NumberMechanismName
    dimensions: int
    """Numbers that each person has."""
    low: float
    high: float
    local_epsilon: float
    """Above 0 and at most 20."""

    def __post_init__(self) -> None:
        within("dimensions", self.dimensions, 1, MAX_DIMENSIONS)
        check_local_epsilon(self.local_epsilon)
        if math.isinf(self.local_epsilon):
            raise TaskError("local_epsilon is inf; a number always goes with noise")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """
    Means of the people whose reports were added up, with their variances.

    The variance is that of noise alone: it says how far the estimate may be off the mean of these
    very people. Where there are too few reports to say anything of a mean, its variance is infinite
    and the mean no figure.
    """

    means: Vector
    """Shape (dimensions,); may lie outside -1 .. 1."""
    variances: Vector
    """Of those means, estimated from the reports themselves; same shape."""
    unbiased: bool = True
    """Whether the expected means are the true ones: if not, the variances are not all of the
    error, and there are no confidence intervals."""


class NumberMechanism(Randomizer, Protocol):
    """One randomizer of numbers and its estimator. Pure; vectorised over users."""

    @property
    def dimensions(self) -> int:
        """How many numbers a person has."""

    @classmethod
    def specify(cls, wanted: NumberRequest) -> NumberSpec:
        """Work out the integers. Run by the analyzer."""

    @classmethod
    def of(cls, task: Task) -> Self:
        """
        Build the mechanism from its integers. Run by the user agent and by the analyzer.

        Raises:
            TaskError: They describe no mechanism of this kind.
        """

    def randomize(self, values: Numbers, rng: np.random.Generator) -> Reports:
        """
        Randomize each person's numbers. Run by the user agent.

        Raises:
            ValueRangeError: A number is not in -1 .. 1.
        """

    def estimate(self, cells: Counts) -> Moments:
        """Estimate the means from what `tally` gave. Run by the analyzer."""

    def variance(self, values: Numbers) -> Vector:
        """Give the exact variance of the estimated means for these people; (dimensions,)."""


def to_unit(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Move low .. high to -1 .. 1; what rounding takes beyond the ends is put back to them."""
    centred = (values - low) / (high - low) * 2 - 1
    unit: NDArray[np.float64] = np.clip(centred, -1.0, 1.0)
    return unit


def check_numbers(values: Numbers, dimensions: int) -> None:
    """
    Check that numbers lie in -1 .. 1 and are as many as they must be. No message repeats one.

    Raises:
        ValueRangeError: One does not, or there are more or fewer.
    """
    if values.ndim != 2 or values.shape[1] != dimensions:  # noqa: PLR2004  # people, dimensions
        raise ValueRangeError(f"a value must hold {dimensions} numbers")
    if not (np.abs(values) <= 1).all():  # what is not a number is not
        raise ValueRangeError("a number must lie in the task's range")


def to_grid(values: Numbers, steps: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """
    Move numbers in -1 .. 1 to whole steps 0 .. steps, at random and so that their mean stays.

    A number between two grid points goes up with a chance that is its place between them, to
    2^-32. Rounding comes before all noise and mixes neighbours of the grid, of which no two are
    less private than its ends are: no ε grows by it. With one step a number goes to an end of the
    range at once. Run by the user agent.

    Args:
        values: In -1 .. 1, which is not checked here; of any shape, which the result has too.
        steps: 1 or more.
        rng: Source of randomness.
    """
    place = (values + 1) * (steps / 2)
    down = np.minimum(np.floor(place), steps - 1)
    odds = np.rint((place - down) * 2.0**FRACTION_BITS).astype(np.int64)
    draw = rng.integers(0, 1 << FRACTION_BITS, size=values.shape, dtype=np.int64)
    return down.astype(np.int64) + (draw < odds)


def rounding_variance(values: Numbers, steps: int) -> NDArray[np.float64]:
    """Give the variance that `to_grid` adds to each number, in its own units; at most 1/steps²."""
    place = (values + 1) * (steps / 2)
    above = place - np.minimum(np.floor(place), steps - 1)
    variance: NDArray[np.float64] = above * (1 - above) * (2 / steps) ** 2
    return variance


def report_layout(fields: list[tuple[str, Any]]) -> np.dtype[Any]:
    """Give a fixed-size layout without gaps, little-endian as every report's."""
    return np.dtype(fields, align=False)


class SpecifiedNumbers(ABC):
    """
    What a mechanism's integers are to itself and to a task; to be inherited.

    A mechanism that is built from a task states its integers again, and both must agree: what it
    does not use is 0 then, and one mechanism has one form.
    """

    @classmethod
    @abstractmethod
    def wanting(cls, wanted: NumberRequest) -> Self:
        """Choose the integers."""

    @classmethod
    @abstractmethod
    def built(cls, spec: NumberSpec, dimensions: int) -> Self:
        """Take the integers that a task states."""

    @abstractmethod
    def spec(self, low: float, high: float) -> NumberSpec:
        """State the integers, for numbers in this range."""

    @classmethod
    def specify(cls, wanted: NumberRequest) -> NumberSpec:
        """
        Work out the integers. Run by the analyzer.

        Raises:
            TaskError: The mechanism is not for so many numbers, or not for this local_epsilon.
        """
        return cls.wanting(wanted).spec(wanted.low, wanted.high)

    @classmethod
    def of_spec(cls, spec: NumberSpec, dimensions: int) -> Self:
        """
        Build the mechanism from what a task says of it, for so many numbers a person.

        Raises:
            TaskError: The integers describe no mechanism of this kind, or have one that it does
                not use.
        """
        mechanism = cls.built(spec, dimensions)
        check_spec(spec, mechanism.spec(spec.low, spec.high))
        return mechanism

    @classmethod
    def of(cls, task: Task) -> Self:
        """
        Build the mechanism of a task, whose domain_size is the numbers that a person has.

        Raises:
            TaskError: As of `of_spec`, or the task is not about numbers.
        """
        return cls.of_spec(number_spec(task), task.domain_size)


def number_spec(task: Task) -> NumberSpec:
    """
    Give what a task says of its mechanism for numbers.

    Raises:
        TaskError: It is about something else.
    """
    spec: object = task.mechanism
    if not isinstance(spec, NumberSpec):
        raise TaskError(f"the mechanism {task.mechanism.name} is not one for numbers")
    return spec


def check_spec(spec: NumberSpec, found: NumberSpec) -> None:
    """
    Check that a task states a mechanism just as the mechanism states itself.

    Raises:
        TaskError: It has a number that the mechanism does not use, or another length of reports.
    """
    ours = asdict(found)
    for field, value in asdict(spec).items():
        if value != ours[field]:
            raise TaskError(
                f"{field} is {value}; of this mechanism, {found.name}, it must be {ours[field]}"
            )


def to_spec(
    name: NumberMechanismName,
    low: float,
    high: float,
    dtype: np.dtype[Any],
    *,
    weights: ResponseWeights | None = None,
    steps: int = 0,
    scale: int = 0,
    reach: int = 0,
    piecewise_weight: int = 0,
    sampled: int = 1,
    projected: int = 0,
) -> NumberSpec:
    """State the integers that a mechanism uses, and 0 for all others (1 for `sampled`)."""
    return NumberSpec(
        name=name,
        low=low,
        high=high,
        steps=steps,
        true_weight=0 if weights is None else weights.true,
        other_weight=0 if weights is None else weights.other,
        scale=scale,
        reach=reach,
        piecewise_weight=piecewise_weight,
        sampled=sampled,
        projected=projected,
        report_bytes=dtype.itemsize,
    )


def number_weights(spec: NumberSpec) -> ResponseWeights:
    """
    Take the odds of an answer from what a task says.

    Raises:
        TaskError: They are none, or those of reports without noise, or too large to be drawn.
    """
    if spec.other_weight == 0:
        raise TaskError(f"other_weight is 0; the mechanism {spec.name} needs local noise")
    weights = ResponseWeights(true=spec.true_weight, other=spec.other_weight)
    weights.total(2)
    return weights


def check_one_number(name: NumberMechanismName, dimensions: int) -> None:
    """
    Check that a person has one number.

    Raises:
        TaskError: It is another number of them.
    """
    if dimensions != 1:
        raise TaskError(f"the mechanism {name} is for one number; a person has {dimensions}")
