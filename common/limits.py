"""
Limits of the fields of messages: a parser returns a valid value, or raises WireError.

The error names the field and the public number that broke the rule. A dataclass states the parser
of a field in the field's type, `Annotated[int, partial(parse_count, maximum=9)]`, where codecs and
specs read it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, partial, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from shuffledp.common.errors import WireError

MAX_USERS: Final = 10**9
MAX_UNIX_TIME: Final = 2**40
MAX_POPULATION_CHARACTERS: Final = 64
MAX_ENVELOPE_BYTES: Final = 1024 * 1024
MAX_LOCAL_EPSILON: Final = 20.0
"""Maximum finite local ε; above it there is almost no noise. Without noise, it is infinite."""
_MAX_KEYS_NAMED: Final = 3
"""Maximum number of unknown keys in a message."""
_OTHER_WORDS: Final = {
    "description": "purpose",
    "eps": "local_epsilon",
    "epsilon": "local_epsilon",
    "law": "distribution",
    "min_users": "n_min",
    "name": "title",
    "question": "prompt",
    "users": "n_min",
}
"""Words that people write for a key, by word; a hint names the key only where it is known."""
_MAX_KEY_CHARACTERS: Final = 64
"""Maximum characters of an unknown key in a message."""

Rule = Callable[[str, Any], Any]
"""Returns a valid field, from its name and value, or raises an error."""
W = TypeVar("W", bound=str)
L = TypeVar("L", bound=bytes | str)


def parse_word(name: str, field: str, allowed: Sequence[W]) -> W:
    """Parse a word that must be one of `allowed`."""
    for word in allowed:
        if word == field:
            return word
    raise WireError(f"{name} must be one of {', '.join(allowed)}")


def parse_fixed(name: str, field: bytes, length: int) -> bytes:
    """Parse bytes of exactly this length."""
    if len(field) != length:
        raise WireError(f"{name} has {len(field)} bytes; it must have {length}")
    return field


def parse_bounded(name: str, field: L, length: int) -> L:
    """Parse bytes or a text of at most this length."""
    if len(field) > length:
        unit = "bytes" if isinstance(field, bytes) else "characters"
        raise WireError(f"{name} has {len(field)} {unit}; it may have at most {length}")
    return field


def parse_amount(name: str, field: float, maximum: float) -> float:
    """Parse a number from 0 to `maximum`."""
    if not 0 <= field <= maximum:
        raise WireError(f"{name} is {field}; it must lie between 0 and {maximum}")
    return field


def parse_count(name: str, field: int, maximum: int) -> int:
    """Parse a whole number up to `maximum`."""
    if field > maximum:
        raise WireError(f"{name} is {field}; it may be at most {maximum}")
    return field


def parse_positive(name: str, field: int, maximum: int) -> int:
    """Parse a whole number from 1 to `maximum`."""
    if not 1 <= field <= maximum:
        raise WireError(f"{name} is {field}; it must lie between 1 and {maximum}")
    return field


def parse_texts(_name: str, fields: Sequence[L], noun: str, length: int) -> tuple[L, ...]:
    """Parse bytes or texts of at most this length each; errors call one of them `noun`."""
    return tuple(parse_bounded(noun, field, length) for field in fields)


def parse_refused(_name: str, field: Mapping[str, int], causes: Sequence[W]) -> dict[W, int]:
    """Parse counts by cause of refusal; each cause must be one of `causes`."""
    return {parse_word("a cause of refusal", cause, causes): n for cause, n in field.items()}


@cache
def stated_rules(kind: type) -> Mapping[str, tuple[Any, Rule | None]]:
    """
    Return the type of each field of a dataclass, without None, and the rule that it states.

    The rule returns None unchanged for an optional field. Raises TypeError for a second rule, or
    one inside a type, which nobody would read.
    """
    bare, found = get_type_hints(kind), dict[str, tuple[Any, Rule | None]]()
    for name, hint in get_type_hints(kind, include_extras=True).items():
        stated = _without_none(hint)
        inner, *rules = get_args(stated) if get_origin(stated) is Annotated else (stated,)
        if inner != _without_none(bare[name]) or len(rules) > 1:
            raise TypeError(f"{name} of {kind.__name__} states a rule that nobody would read")
        if rules and stated is not hint:
            rules = [partial(_unless_none, rules[0])]
        found[name] = inner, (*rules, None)[0]
    return found


def _without_none(kind: Any) -> Any:  # noqa: ANN401  # any type
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return reduce(or_, (each for each in get_args(kind) if each is not NoneType))


def _unless_none(rule: Rule, name: str, field: Any) -> Any:  # noqa: ANN401  # of any type
    return None if field is None else rule(name, field)


def unknown_keys(keys: Iterable[str], known: Iterable[str], noun: str, source: str) -> str:
    """Return a message that names unknown keys, what they may mean, and the source if stated."""
    unknown, names = sorted(key[:_MAX_KEY_CHARACTERS] for key in keys), list(known)
    shown, more = unknown[:_MAX_KEYS_NAMED], len(unknown) - _MAX_KEYS_NAMED
    meant = [_OTHER_WORDS.get(key, key) for key in shown if "." not in key]  # no inner table's
    hints = [hint for key in meant for hint in get_close_matches(key, names, 1)]
    plain = ", ".join(key.encode("unicode_escape").decode() for key in shown)
    return (
        f"{source}{': ' if source else ''}unknown {noun}: {plain}"
        f"{f' and {more} more' if more > 0 else ''}"
        f"{'; did you mean ' if hints else ''}{', '.join(hints)}{'?' if hints else ''}"
    )
