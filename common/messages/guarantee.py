"""Guarantees of differential privacy, the checks that one may lack, and rounding of figures."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction
from functools import partial
from typing import Annotated, Final, Literal, Self, get_args

from shuffledp.common.errors import WireError
from shuffledp.common.limits import parse_amount

Coalition = Literal[
    "analyzer",
    "analyzer+users",
    "analyzer+skippers",
    "analyzer+sybils",
    "issuer+analyzer",
    "shuffler+analyzer",
    "analyzer+first-shuffler",
    "analyzer+second-shuffler",
    "either-shuffler",
    "both-shufflers+analyzer",
    "both-shufflers",
    "shuffler",
    "issuer",
    "issuer+shuffler",
    "network",
]
"""`analyzer+users`: colluding users reveal their reports and dummies. `analyzer+skippers`: some
users add no dummies. `analyzer+sybils`: all users but one are made up, by the analyzer or others;
one-time tokens prevent it, unless the issuer makes them up. `either-shuffler`: of two, with a
published result."""

REPLACE_PERMANENT: Final = (
    "replace-one, lasting: two data sets differ in one user's answer to the question, which is the "
    "same in all its tasks"
)
"""Neighbouring relation for permanent responses, which do not hide that an answer changes."""
REPLACE_ONE: Final = "replace-one: two data sets differ in one user's value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """(ε, δ)-differential privacy of each honest user against one coalition."""

    coalition: Coalition
    """The parties that pool what they saw."""
    epsilon: Annotated[float, partial(parse_amount, maximum=math.inf)]
    """Upper bound; infinite if nothing is certified."""
    delta: Annotated[float, partial(parse_amount, maximum=1)]
    neighbouring: str
    theorem: str
    """Theorem behind the figure, with its source."""
    assumptions: tuple[str, ...]
    """Assumptions of the guarantee, in words."""


def claimed(guarantees: Sequence[Guarantee]) -> Guarantee:
    """
    Return the guarantee that a task claims and that its release is charged for.

    This is the guarantee against the analyzer and colluding users if there is one, and otherwise
    the guarantee against the analyzer alone.
    """
    by_coalition = {guarantee.coalition: guarantee for guarantee in guarantees}
    return by_coalition.get("analyzer+users") or by_coalition["analyzer"]


def default_delta(people: int) -> float:
    """Return the default δ for this many people: the lesser of 1e-6 and a tenth of 1 / people."""
    return min(1e-6, 0.1 / people)


def delta_warnings(delta: float, people: int, name: str = "delta") -> tuple[str, ...]:
    """Return a warning if publishing a random one of these people's values would meet this δ."""
    warning = (
        f"{name} is {rounded_up(delta)} for {people:,} people: {name} allows publishing one of "
        f"these people in the clear; use a {name} far below 1 / {people:,}"
    )
    return (warning,) * (delta * people >= 1)


CheckName = Literal["sentinels", "lengths", "refusals"]
"""The checks of a batch; docs/operators/monitoring.md says what each waiver costs."""
_MAX_DIGITS: Final = 15


@dataclass(frozen=True, slots=True)
class Waived:
    """Waived checks, and the numbers that guarantees rely on without the check of lengths."""

    checks: tuple[CheckName, ...] = ()
    by_length: tuple[int, ...] = ()
    """Submissions of each of the task's lengths; empty unless `lengths` is waived."""

    def __post_init__(self) -> None:
        """Raise WireError unless the lengths are given if, and only if, their check is waived."""
        if bool(self.by_length) != ("lengths" in self.checks):
            raise WireError("numbers by length belong to the waived check of lengths alone")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse what `str` returns, such as "lengths 970 30"; raise WireError for other text."""
        words = text.split()
        numbers = [word for word in words if word.isdecimal() and len(word) <= _MAX_DIGITS]
        checks = tuple(check for check in get_args(CheckName) if check in words)
        found = cls(checks, tuple(map(int, numbers)))
        if str(found) != text:
            raise WireError("the waived checks are not a list of checks and numbers by length")
        return found

    def __str__(self) -> str:
        return " ".join([*self.checks, *map(str, self.by_length)])


NONE_WAIVED: Final = Waived()

_DIGITS: Final = 4


def sum_upper(figures: Iterable[float]) -> float:
    """
    Return the least float that is not below the exact sum of privacy figures.

    Each figure counts as its shortest decimal, the number that a task states: ten times .1 is 1.
    The decimal is within a relative 2^-53 of the float for which weights are chosen.
    """
    known = list(figures)
    if math.inf in known:
        return math.inf
    exact = sum((Fraction(repr(float(figure))) for figure in known), Fraction(0))
    nearest = float(exact)
    return nearest if Fraction(repr(nearest)) >= exact else math.nextafter(nearest, math.inf)


def rounded_up(figure: float) -> str:
    """Format a privacy figure with four significant digits, rounded up; "inf" if infinite."""
    return _formatted(figure, ROUND_CEILING)


def rounded_down(figure: float) -> str:
    """Format a lower bound or a remaining budget with four significant digits, rounded down."""
    return _formatted(figure, ROUND_FLOOR)


def _formatted(figure: float, rounding: str) -> str:
    # From the shortest decimal, so that .1 is shown as .1.
    shown = Context(prec=_DIGITS, rounding=rounding).create_decimal(repr(float(figure)))
    return f"{float(shown):.4g}"
