"""Strict checks of the arguments of functions for notebooks: a sentence for each mistake."""

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import (
    Annotated,
    Any,
    Final,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import ConfigDict, ValidationError, validate_call

from shuffledp.common.errors import ArgumentError, ArgumentTypeError, ShuffleDpError, UsageError
from shuffledp.common.protocols import Kind
from shuffledp.common.runtime.validation import STRICT, sentence_of
from shuffledp.common.task.kinds import KINDS, check_options

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
    """
    Return an array, a Series or a number as Python's own; 3.0 as 3, since nothing is lost.

    A structured array becomes a dict of its columns.
    """
    if names := getattr(getattr(given, "dtype", None), "names", None):
        return {name: given[name] for name in names}
    for method in ("tolist", "to_list"):
        if hasattr(given, method):
            given = getattr(given, method)()
    return int(given) if isinstance(given, float) and given.is_integer() else given


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """
    Return a function that also takes numpy's numbers and arrays, and 1e4 for a whole number.

    It raises ArgumentError or ArgumentTypeError, whose sentence names the argument and the rule,
    which may be the text of an annotation: `Annotated[Path | str, "a path"]`. Arguments that are
    not for the `kind` of value are refused.
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
        stated = _bound(function.__name__, parameters, unnamed, positional, named)
        given = {name: plain(each) for name, each in stated.items()}
        for name, each in given.items():
            if isinstance(each, float) and math.isnan(each):
                raise ArgumentError(f"{name} is nan; it must be a number")
            if isinstance(each, int) and abs(each) >= _MOST:
                raise ArgumentError(f"{name} is too large; it must be within 64 bits")
        try:
            if (kind := str(given.get("kind", "categorical"))) in KINDS:
                check_options(cast("Kind", kind), {n: n for n in given if given[n] is not None})
            return call(**given)
        except ValidationError as error:
            raise _refusal(error, stated, parameters, rules) from None
        except ShuffleDpError as error:
            if error.status != UsageError.status:
                raise
            refusal = ArgumentTypeError if isinstance(error, TypeError) else ArgumentError
            raise refusal(str(error)) from None

    return run


def _bound(
    function: str,
    names: Collection[str],
    unnamed: Sequence[str],
    positional: Sequence[object],
    named: Mapping[str, object],
) -> dict[str, object]:
    """Return a call's arguments by name; raise ArgumentTypeError for too many of them."""
    stated = {**dict(zip(unnamed, positional, strict=False)), **named}
    if len(positional) > len(unnamed):
        listed = ", ".join(name for name in unnamed if name != "self")
        write = "".join(f"; write {name}=…" for name in [*names][len(unnamed) :][:1])
        raise ArgumentTypeError(f"{function} takes only {listed} without a name{write}")
    if len(stated) < len(positional) + len(named):
        twice = next(name for name in unnamed if name in named)
        raise ArgumentTypeError(f"{twice} is given twice")
    return stated


def _refusal(
    error: ValidationError,
    stated: Mapping[str, object],
    names: Collection[str],
    rules: Mapping[str, str],
) -> UsageError:
    """Return the first error that pydantic found, in plain words."""
    first = error.errors(include_url=False)[0]
    name, given = str(first["loc"][0]), first["input"]
    place = tuple(each for each in first["loc"][1:] if each != "[key]")
    wanted, hints = rules.get(name) or _RULES.get(first["type"]), list[str]()
    if first["type"] == "literal_error":
        wanted = first["ctx"]["expected"]
        hints = get_close_matches(str(given), re.findall("'([^']+)'", wanted), 1)
    if not wanted or name not in stated:
        return ArgumentTypeError(sentence_of(error, names, "argument"))
    if name in rules or not place:
        place, given = (), plain(stated[name])
    shown = f"is {given!r}"
    if not isinstance(given, str | int | float | None):
        shown = f"has the type {type(given if place else stated[name]).__name__}"
    parts = "".join(f"[{each!r}]" for each in place)
    hint = "".join(f"; did you mean {each}?" for each in hints)
    of_value = isinstance(given, str) and first["type"] == "literal_error"
    refusal = ArgumentError if of_value else ArgumentTypeError
    return refusal(f"{name}{parts} {shown}; it must be {wanted}{hint}")
