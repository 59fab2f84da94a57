"""The interface of mechanisms for numbers in -1 .. 1, and the code that they share."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.mechanisms.arguments import CheckedArguments, checked_array
from shuffledp.common.mechanisms.base import Counts, Mixture, Randomizer, Reports, Vector
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.messages.result import Interval
from shuffledp.common.protocols import NumberMechanismName
from shuffledp.common.task.draft import NumberDraft
from shuffledp.common.task.spec_forms import AnySpec, spec_as
from shuffledp.common.task.specs import NumberSpec
from shuffledp.common.task.task import Task

Numbers = NDArray[np.float64]
"""Values of n users: shape (n, dimensions), each in -1 .. 1."""

STEPS: Final = 4096
"""Default number of grid intervals. Rounding adds at most 6e-8 to the variance, far below noise."""
FRACTION_BITS: Final = 32
"""Random bits used to round a number to a grid point."""
_WORST: Final = (0.0, 1.0)
"""Numbers at one of which a report has the largest variance."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """
    Estimated means, and their variances, over the users whose reports were counted.

    Variances include only noise: they measure deviations from the means of these users. With too
    few reports the variances are infinite and the means meaningless.
    """

    means: Vector
    """Shape (dimensions,); may be outside -1 .. 1."""
    variances: Vector
    """Variances of those means, estimated from the reports; same shape."""
    rounding: float = 0.0
    """The part of each variance that stands for random rounding, at its largest; 0.0 where it is
    negligible."""
    unbiased: bool = True
    """False if the means are biased: variances omit the bias; there are no confidence intervals."""


def to_unit(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Map each value from low .. high to -1 .. 1, and clip rounding errors at the ends."""
    centred = (values - low) / (high - low) * 2 - 1
    return np.clip(centred, -1.0, 1.0)


def check_numbers(values: Any, dimensions: int) -> Numbers:  # noqa: ANN401  # a list too
    """
    Return numbers as an array; raise ValueRangeError if their shape or range is wrong.

    Raises TypeError unless they are numbers. No message contains one.
    """
    numbers = checked_array(values, "iuf", "numbers").astype(np.float64, copy=False)
    if numbers.ndim != 2 or numbers.shape[1] != dimensions:  # noqa: PLR2004  # a row per user
        raise ValueRangeError(f"a value must hold {dimensions} numbers")
    if not (np.abs(numbers) <= 1).all():  # NaN fails too
        raise ValueRangeError("a number must lie in the task's range")
    return numbers


def to_grid(values: Numbers, steps: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """
    Round numbers in -1 .. 1 at random to grid points 0 .. steps. Run by the user agent.

    A number between two grid points is rounded up with a probability equal to its relative
    position, to within 2^-29 of a step, which preserves its mean. Rounding precedes all noise, so a
    report is a mixture over grid points, and no ε increases. With one step a number is rounded to
    an end.

    The numbers are not checked here, and may have any shape, which the result shares.
    """
    place = (values + 1) * (steps / 2)
    down = np.minimum(np.floor(place), steps - 1)
    threshold = np.rint((place - down) * 2.0**FRACTION_BITS).astype(np.int64)
    draw = rng.integers(0, 1 << FRACTION_BITS, size=values.shape, dtype=np.int64)
    return down.astype(np.int64) + (draw < threshold)


def rounding_variance(values: Numbers, steps: int) -> NDArray[np.float64]:
    """Return the variance u(1-u)·(2/steps)² of `to_grid` at relative position u between points."""
    place = (values + 1) * (steps / 2)
    above = place - np.minimum(np.floor(place), steps - 1)
    return above * (1 - above) * (2 / steps) ** 2


class MeanMechanism(CheckedArguments, Randomizer, ABC):
    """A randomizer of numbers, and its estimator of their means. Pure."""

    dimensions: int
    """Numbers per user."""

    @classmethod
    @abstractmethod
    def specify(cls, draft: NumberDraft, dimensions: int, local_epsilon: float) -> AnySpec:
        """Return a task's description of the mechanism, or raise TaskError. Run by the analyzer."""

    @classmethod
    @abstractmethod
    def of(cls, task: Task) -> Self:
        """Build a task's mechanism, or raise TaskError. Run by the user agent and the analyzer."""

    @abstractmethod
    def randomize(self, values: Numbers, rng: np.random.Generator) -> Reports:
        """
        Randomize each user's numbers, (n, dimensions), in -1 .. 1. Run by the user agent.

        Returns n reports of `report_dtype`. Raises ValueRangeError if a number is not in -1 .. 1,
        or a user has too few or too many.
        """

    @abstractmethod
    def moments(self, cells: Counts, mixture: Mixture) -> Moments:
        """Estimate the means from the result of `tally`. Run by the analyzer."""

    @abstractmethod
    def sample_batch(self, values: Numbers, rng: np.random.Generator) -> tuple[Counts, int]:
        """
        Draw the result of `tally` for these users and their dummies, and the number of reports.

        Run by the simulator.
        """

    @abstractmethod
    def variance(self, values: Numbers) -> Vector:
        """Return the exact variance of the estimated means for these users; (dimensions,)."""

    def worst_variance(self, n_users: int) -> float:
        """
        Return the largest variance of n_users' estimated means, averaged over the dimensions.

        By default a report's variance is largest at the middle of the range, or at its ends.
        """
        people = np.ones((1, self.dimensions))
        return max(float(self.variance(place * people).mean()) for place in _WORST) / n_users

    def interval(self, moments: Moments, confidence: float) -> Interval | None:
        """
        Return both ends of the intervals around estimated means; None if normal ones suffice.

        Run by the analyzer's operator.
        """
        return None


class NumberMechanism(MeanMechanism):
    """
    A randomizer that adds local noise to numbers, and its integer parameters in a task.

    Unused parameters keep their default, so that each mechanism has only one valid description.
    """

    NAME: ClassVar[NumberMechanismName]
    ANSWER: ClassVar[type["NumberMechanism"]]
    """Class of the field `answer`, if there is one: the mechanism of each coordinate."""

    @classmethod
    @abstractmethod
    def for_epsilon(cls, dimensions: int, local_epsilon: float) -> Self:
        """Choose the integer parameters for a local ε in 0 .. 20. Run by the analyzer."""

    @abstractmethod
    def estimate(self, cells: Counts) -> Moments:
        """Estimate the means from the result of `tally`, which counts the users too."""

    def moments(self, cells: Counts, mixture: Mixture) -> Moments:
        """Return `estimate`: nobody adds dummies."""
        return self.estimate(cells)

    def sample_batch(self, values: Numbers, rng: np.random.Generator) -> tuple[Counts, int]:
        return self.tally(self.randomize(values, rng)), len(values)

    @classmethod
    def specify(cls, draft: NumberDraft, dimensions: int, local_epsilon: float) -> NumberSpec:
        if draft.radices:
            raise TaskError(
                f"there are {len(draft.radices)} radices; they are for digits, not for {cls.NAME}"
            )
        return cls.for_epsilon(dimensions, local_epsilon).spec(draft.low, draft.high)

    @classmethod
    def from_spec(cls, spec: NumberSpec, dimensions: int) -> Self:
        """Read the fields, which are named like a task's integers, from its description."""
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # of every subclass
        given: dict[str, Any] = {**asdict(spec), "dimensions": dimensions}
        if "weights" in names:
            given["weights"] = number_weights(spec)
        if "answer" in names:
            given["answer"] = cls.ANSWER.from_spec(spec, 1)
        return cls(**{name: given[name] for name in names & given.keys()})

    @property
    def integers(self) -> dict[str, int]:
        """The integer fields of a NumberSpec that this mechanism uses, with their values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        if "answer" in values:
            values |= values["answer"].integers
        if "weights" in values:
            weights = values["weights"]
            values |= {"true_weight": weights.true, "other_weight": weights.other}
        used = {field.name for field in fields(NumberSpec)}
        return {name: value for name, value in values.items() if name in used}

    def spec(self, low: float, high: float) -> NumberSpec:
        """Return the task's description of this mechanism, for numbers in low .. high."""
        return NumberSpec(
            name=self.NAME,
            low=low,
            high=high,
            report_bytes=self.report_dtype.itemsize,
            **self.integers,
        )

    @classmethod
    def of_spec(cls, spec: NumberSpec, dimensions: int) -> Self:
        """Build the mechanism from a task's description, or raise TaskError if it has another."""
        mechanism = cls.from_spec(spec, dimensions)
        own = asdict(mechanism.spec(spec.low, spec.high))
        for field, value in asdict(spec).items():
            if value != own[field]:
                raise TaskError(
                    f"{field} is {value}; for the mechanism {cls.NAME} it must be {own[field]}"
                )
        return mechanism

    @classmethod
    def of(cls, task: Task) -> Self:
        return cls.of_spec(spec_as(task.mechanism, NumberSpec), task.domain_size)


def number_weights(spec: NumberSpec) -> ResponseWeights:
    """Return a task's weights, or raise TaskError if there is no noise or they are too large."""
    if spec.other_weight == 0:
        raise TaskError(f"other_weight is 0; the mechanism {spec.name} needs local noise")
    weights = ResponseWeights.of(spec)
    weights.total(2)
    return weights
