"""Check the types of every mechanism's fields and arguments."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import ValueRangeError


class CheckedArguments:
    """
    Base class of mechanisms: a wrong type is a TypeError, before a number is truncated or drawn.

    It checks the fields of a mechanism that are classes, such as weights, and arguments of every
    public method: see _CHECKS. `checked_array` checks the values to randomize.
    """

    def __init_subclass__(cls, **options: Any) -> None:  # noqa: ANN401  # of other base classes
        """Check the arguments of public methods, and the fields before other checks."""
        super().__init_subclass__(**options)
        for name, method in [*vars(cls).items()]:
            if name == "__post_init__":
                setattr(cls, name, _after_fields(method))
            elif inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _with_arguments(method))

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_fields(self)


def _check_fields(mechanism: Any) -> None:  # noqa: ANN401  # any dataclass
    for field in dataclasses.fields(mechanism):
        value, kind = getattr(mechanism, field.name), field.type
        if kind is int and isinstance(value, Integral):
            object.__setattr__(mechanism, field.name, int(value))  # numpy's integers overflow
        elif isinstance(kind, type) and not isinstance(value, kind):
            raise TypeError(
                f"{field.name} of {type(mechanism).__name__} has the type {type(value).__name__}; "
                f"it must be {kind.__name__}"
            )


def _after_fields(check: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(check)
    def checked(mechanism: Any) -> None:  # noqa: ANN401  # any dataclass
        _check_fields(mechanism)
        check(mechanism)

    return checked


def _with_arguments(method: Callable[..., Any]) -> Callable[..., Any]:
    names = inspect.signature(method)
    if not names.parameters.keys() & {"reports", *_CHECKS}:
        return method

    @functools.wraps(method)
    def checked(*given: Any, **named: Any) -> Any:  # noqa: ANN401  # any method
        bound = names.bind(*given, **named)
        for name in bound.arguments.keys() & _CHECKS.keys():
            bound.arguments[name] = _CHECKS[name](name, bound.arguments[name])
        if "reports" in bound.arguments:
            _check_reports(bound.arguments["reports"], given[0].report_dtype)
        return method(*bound.args, **bound.kwargs)

    return checked


def _generator(name: str, value: Any) -> np.random.Generator:  # noqa: ANN401  # any value
    if not isinstance(value, np.random.Generator):
        raise TypeError(f"{name} has the type {type(value).__name__}; it must be numpy's Generator")
    return value


def _check_reports(reports: Any, dtype: np.dtype[Any]) -> None:  # noqa: ANN401  # any value
    if not isinstance(reports, np.ndarray) or reports.ndim != 1 or reports.dtype != dtype:
        raise TypeError(f"reports must be an array of shape (n,) and of the type {dtype}")


def _whole(name: str, value: Any) -> int:  # noqa: ANN401  # any value
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} has the type {type(value).__name__}; it must be a whole number")
    if value < 0:
        raise ValueRangeError(f"{name} must be 0 or more")
    return int(value)


def _people(name: str, value: Any) -> NDArray[np.int64]:  # noqa: ANN401  # any value
    counts = checked_array(value, "iu", "whole numbers")
    if counts.ndim != 1 or (counts < 0).any():
        raise ValueRangeError(f"{name} must be a number of people, 0 or more, for each item")
    return counts.astype(np.int64)


_CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "rng": _generator,
    "count": _whole,
    "item": _whole,
    "n_dummies": _whole,
    "users": _people,
}
"""Checks of arguments by name, which return the argument in its own type."""


def checked_array(values: Any, kinds: str, words: str) -> NDArray[Any]:  # noqa: ANN401  # any values
    """Return values as an array; raise TypeError unless numpy's kind of them is one of `kinds`."""
    try:
        found = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise TypeError(f"values must be an array of {words}") from error
    if found.ndim == 0 or (found.size and found.dtype.kind not in kinds):
        raise TypeError(f"values are {found.dtype} of shape {found.shape}, not an array of {words}")
    return found
