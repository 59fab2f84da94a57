"""Strict checks of the arguments of functions for notebooks: a sentence for each mistake."""

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Annotated, Any, Final, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, ValidationError, validate_call

from shuffledp.common.errors import ArgumentError, ArgumentTypeError, ShuffleDpError, UsageError
from shuffledp.common.runtime.validation import STRICT, sentence_of

_STRICT: Final = ConfigDict(**STRICT, arbitrary_types_allowed=True)
_RULES: Final = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "sequence_str": "a list of texts",
    "is_instance_of": "a list, tuple, array or Series",
    "dict_type": "a dict of lists of texts",
}
"""Rules in words, by the type of pydantic's error."""
_MOST: Final = 2**63
P = ParamSpec("P")
T = TypeVar("T")


def plain(given: Any) -> Any:  # noqa: ANN401  # any object
    """Return an array, a Series or a number as Python's own; 3.0 as 3, since nothing is lost."""
    for method in ("tolist", "to_list"):
        if hasattr(given, method):
            given = getattr(given, method)()
    return int(given) if isinstance(given, float) and given.is_integer() else given


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """
    Return a function that also takes numpy's numbers and arrays, and 1e4 for a whole number.

    It raises ArgumentError or ArgumentTypeError, whose sentence names the argument and the rule. A
    type that is annotated with a text, `Annotated[Path | str, "a path"]`, has that rule.
    """
    call: Callable[..., T] = validate_call(config=_STRICT)(function)
    parameters = inspect.signature(function).parameters
    rules = {
        name: each.__metadata__[0]
        for name, hint in get_type_hints(function, include_extras=True).items()
        for each in (hint, *get_args(hint))
        if get_origin(each) is Annotated
    }
    unnamed = [n for n, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]

    @wraps(function)
    def run(*positional: P.args, **named: P.kwargs) -> T:
        if len(positional) > len(unnamed):
            rule = f"takes only {', '.join(unnamed)} without a name"
            follows = [*parameters, ""][len(unnamed)]
            raise ArgumentTypeError(
                f"{function.__name__} {rule}" + f"; write {follows}=…" * bool(follows)
            )
        stated = dict(zip(unnamed, positional, strict=False))
        if twice := stated.keys() & named.keys():
            raise ArgumentTypeError(f"{min(twice)} is given twice")
        stated |= named
        given = {name: plain(each) for name, each in stated.items()}
        for name, each in given.items():
            if isinstance(each, float) and math.isnan(each):
                raise ArgumentError(f"{name} is nan; it must be a number")
            if isinstance(each, int) and abs(each) >= _MOST:
                raise ArgumentError(f"{name} is too large; it must be within 64 bits")
        try:
            return call(**given)
        except ValidationError as error:
            raise _refusal(error, stated, parameters, rules) from None
        except ShuffleDpError as error:
            if error.status != UsageError.status:
                raise
            refusal = ArgumentTypeError if isinstance(error, TypeError) else ArgumentError
            raise refusal(str(error)) from None

    return run


def _refusal(
    error: ValidationError,
    stated: Mapping[str, object],
    names: Collection[str],
    rules: Mapping[str, str],
) -> UsageError:
    """Return the first error that pydantic found, in plain words."""
    first = error.errors(include_url=False)[0]
    name, place, given = str(first["loc"][0]), first["loc"][1:], first["input"]
    wanted, choices = rules.get(name, _RULES.get(first["type"], "")), list[str]()
    if first["type"] == "literal_error":
        wanted = first["ctx"]["expected"]
        choices = get_close_matches(str(given), re.findall("'([^']+)'", wanted), 1)
    if not wanted or name not in stated:
        return ArgumentTypeError(sentence_of(error, names, "argument"))
    if name in rules:
        place = ()
    shown = f"is {given!r}"
    if not isinstance(given, str | int | float | None):
        whole = given if place else stated[name]
        shown = f"has the type {type(whole).__name__}"
    name += "".join(f"[{each!r}]" for each in place)
    hint = "".join(f"; did you mean {each}?" for each in choices)
    of_value = isinstance(given, str) and first["type"] == "literal_error"
    refusal = ArgumentError if of_value else ArgumentTypeError
    return refusal(f"{name} {shown}; it must be {wanted}{hint}")
