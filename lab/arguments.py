"""Check the arguments of functions for notebooks: a mistake gets a sentence, nothing is cut off."""

import inspect
import re
from collections.abc import Callable, Collection
from functools import wraps
from typing import Final, ParamSpec, TypeVar, cast

from pydantic import ConfigDict, ValidationError, validate_call

from shuffledp.common.errors import ArgumentError, ArgumentTypeError, ShuffleDpError, UsageError
from shuffledp.common.protocols import Kind
from shuffledp.common.runtime.validation import STRICT, sentence_of
from shuffledp.common.task.kinds import KINDS, check_options
from shuffledp.deploy.datasets.own_values import plain

_STRICT: Final = ConfigDict(**STRICT, arbitrary_types_allowed=True)
_RULES: Final = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "sequence_str": "a list of texts",
    "is_instance_of": "a list, tuple, array or Series",
    "dict_type": "a dict of lists of texts",
    "dataclass_exact_type": "what another function returned, or the path of a file",
}
"""Rules in words, by the type of pydantic's error."""
P = ParamSpec("P")
T = TypeVar("T")


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """
    Return a function that also takes numpy's numbers and arrays, and 1e4 for a whole number.

    It raises ArgumentError or ArgumentTypeError, whose sentence names the argument and the rule.
    """
    call: Callable[..., T] = validate_call(config=_STRICT)(function)
    names = inspect.signature(function).parameters
    unnamed = [name for name, each in names.items() if each.kind is each.POSITIONAL_OR_KEYWORD]

    @wraps(function)
    def run(*positional: P.args, **named: P.kwargs) -> T:
        given = dict(zip(unnamed, positional, strict=False))
        if len(given) < len(positional) or given.keys() & named.keys():
            rule = f"takes each argument once, and only {', '.join(unnamed)} without a name"
            raise ArgumentTypeError(f"{function.__name__} {rule}")
        given = {name: plain(each) for name, each in {**given, **named}.items()}
        try:
            if (kind := str(given.get("kind", "categorical"))) in KINDS:
                stated = {name: name for name in given if given[name] is not None}
                check_options(cast("Kind", kind), stated)
            return call(**given)
        except ValidationError as error:
            raise ArgumentTypeError(_sentence(error, names)) from None
        except OverflowError:
            raise ArgumentError("a whole number is too large") from None
        except ShuffleDpError as error:
            if error.status != UsageError.status:
                raise
            refusal = ArgumentTypeError if isinstance(error, TypeError) else ArgumentError
            raise refusal(_in_python(str(error), names)) from None

    return run


def _sentence(error: ValidationError, names: Collection[str]) -> str:
    """Return what pydantic found first, in plain words."""
    first = error.errors(include_url=False)[0]
    if first["type"] not in _RULES:
        return sentence_of(error, names, "argument")
    (name, *place), given = first["loc"], first["input"]
    name = f"{name}[{place[0]}]" if place and isinstance(place[0], int) else name
    shown = repr(given) if isinstance(given, str | int | float) else f"a {type(given).__name__}"
    return f"{name} is {shown}; it must be {_RULES[first['type']]}"


def _in_python(message: str, names: Collection[str]) -> str:
    """Name arguments as Python does: `--local-cap`, or `users` or `the local cap` in front."""

    def argument(found: re.Match[str]) -> str:
        name = re.sub("[- ]", "_", found[1] or found[2])
        return next((each for each in (name, f"n_{name}") if each in names), found[0])

    message = message.replace("--local-cap none", "local_cap=math.inf")
    return re.sub(r"--([a-z][a-z-]*)|^(?:the )?([a-z_ ]+?)(?= (?:is|must) )", argument, message)
