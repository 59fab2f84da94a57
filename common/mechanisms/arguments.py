"""Check the types of every mechanism's fields and arguments."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray


class CheckedArguments:
    """
    Base class of mechanisms: a wrong type is a TypeError, before a number is truncated or drawn.

    It checks the fields of a mechanism that are classes, such as weights, and the argument `rng` of
    every method; `checked_array` checks the values to randomize.
    """

    def __init_subclass__(cls, **options: Any) -> None:  # noqa: ANN401  # of other base classes
        """Check the generator of each method that takes one, and the fields before other checks."""
        super().__init_subclass__(**options)
        for name, method in [*vars(cls).items()]:
            if name == "__post_init__":
                setattr(cls, name, _after_fields(method))
            elif inspect.isfunction(method) and "rng" in inspect.signature(method).parameters:
                setattr(cls, name, _with_generator(method))

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


def _with_generator(method: Callable[..., Any]) -> Callable[..., Any]:
    names = inspect.signature(method)

    @functools.wraps(method)
    def checked(*given: Any, **named: Any) -> Any:  # noqa: ANN401  # any method
        rng = names.bind(*given, **named).arguments["rng"]
        if not isinstance(rng, np.random.Generator):
            raise TypeError(f"rng has the type {type(rng).__name__}; it must be numpy's Generator")
        return method(*given, **named)

    return checked


def checked_array(values: Any, kinds: str, words: str) -> NDArray[Any]:  # noqa: ANN401  # any values
    """Return values as an array; raise TypeError unless numpy's kind of them is one of `kinds`."""
    try:
        found = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise TypeError(f"values must be an array of {words}") from error
    if found.ndim == 0 or (found.size and found.dtype.kind not in kinds):
        raise TypeError(f"values are {found.dtype} of shape {found.shape}, not an array of {words}")
    return found
