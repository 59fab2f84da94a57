"""From a wish to the integers of a mechanism for numbers, and from a task back to the mechanism."""

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any, Self

import numpy as np

from common.errors import TaskError
from common.mechanisms.number import WantedNumbers
from common.mechanisms.response_weights import ResponseWeights
from common.number_spec import NumberSpec
from common.protocols import NumberMechanismName
from common.task import Task


class SpecifiedNumbers(ABC):
    """
    What a mechanism's integers are to itself and to a task; to be inherited.

    A mechanism that is built from a task states its integers again, and both must agree: what it
    does not use is 0 then, and one mechanism has one form.
    """

    @classmethod
    @abstractmethod
    def wanting(cls, wanted: WantedNumbers) -> Self:
        """Choose the integers."""

    @classmethod
    @abstractmethod
    def built(cls, spec: NumberSpec, dimensions: int) -> Self:
        """Take the integers that a task states."""

    @abstractmethod
    def spec(self, low: float, high: float) -> NumberSpec:
        """State the integers, for numbers in this range."""

    @classmethod
    def specify(cls, wanted: WantedNumbers) -> NumberSpec:
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
        check_stated(spec, mechanism.spec(spec.low, spec.high))
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


def check_stated(spec: NumberSpec, found: NumberSpec) -> None:
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


def stated(
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
