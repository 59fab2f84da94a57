"""A query to the accountant: a mechanism, a population, and the wanted figure."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from common.accounting.amplification import delta_upper, epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.assumptions import FORMULA_1
from common.accounting.count_distributions import (
    Binomial,
    CountDistribution,
    Groups,
    NegativeBinomial,
    Poisson,
)
from common.accounting.reference.attack import epsilon_lower
from common.accounting.reference.general_blanket import (
    BlanketPair,
    blanket_delta,
    blanket_epsilon,
    laplace_pair,
    rappor_pair,
)
from common.accounting.reference.other_bounds import compare
from common.accounting.reference.randomizers import (
    duchi,
    optimized_unary,
    piecewise,
    symmetric_unary,
)
from common.errors import AccountingError, TaskError
from common.mechanisms.reduction import MatchCountReduction
from common.messages.guarantee import REPLACE_ONE, Guarantee
from common.runtime.validation import STRICT, validated
from common.task.dummy_spec import DummySpec

Subject = MatchCountReduction | BlanketPair
"""A randomizer as accounting models it."""

BLANKET: Final = "privacy blanket, general form, rounded up ([BBGN19]; common/accounting)"

WITH_ALPHABET: Final = {"grr": False, "local-hashing": True}
"""Whether the answer is to a hashed value."""
_OF_EPSILON: Final[Mapping[str, Callable[[float], Subject]]] = {
    "symmetric-unary": symmetric_unary,
    "optimized-unary": optimized_unary,
    "duchi": duchi,
    "piecewise": piecewise,
    "laplace": laplace_pair,
}
_BOUNDS: Final[Mapping[type, tuple[Callable[..., float], Callable[..., float]]]] = {
    MatchCountReduction: (epsilon_upper, delta_upper),
    BlanketPair: (blanket_epsilon, blanket_delta),
}
"""The search for an ε at a δ, and the δ at an ε."""
_RAPPOR: Final = "rappor"
MECHANISMS: Final = (*WITH_ALPHABET, *_OF_EPSILON, _RAPPOR)
_LAWS_IN_WORDS: Final = (
    "a law of random dummies is binomial:TRIALS,CHANCE, poisson:MEAN, negative-binomial:R,MEAN "
    "or groups:SIZE,TRIALS,CHANCE"
)


def numbers_in(text: str) -> tuple[float, ...]:
    """
    Parse numbers that commas separate.

    Raises:
        AccountingError: One is no number.
    """
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError as error:
        raise AccountingError(f"{text!r} must be numbers with commas between them") from error


def _binomial(trials: float, chance: float) -> Binomial:
    if not trials.is_integer():
        raise AccountingError(_LAWS_IN_WORDS)
    return Binomial(int(trials), chance)


def _groups(size: float, trials: float, chance: float) -> Groups:
    if not size.is_integer():
        raise AccountingError(_LAWS_IN_WORDS)
    return Groups(_binomial(trials, chance), int(size))


_LAWS: Final[Mapping[str, tuple[str, int, Callable[..., CountDistribution]]]] = {
    "M_binom": ("binomial", 2, _binomial),
    "M_negbin": ("negative-binomial", 2, NegativeBinomial),
    "M_poisson": ("poisson", 1, Poisson),
    "M_groups": ("groups", 3, _groups),
}
"""Random numbers of dummies by key: the name on the command line, how many numbers, the law."""


def parse_law(text: str) -> dict[str, Any]:
    """
    Parse a distribution of a random number of dummies; return its key in a file, and its numbers.

    Raises:
        AccountingError: It is not one of the known distributions, such as `poisson:MEAN`.
    """
    name, _, rest = text.partition(":")
    for key, (known, *_) in _LAWS.items():
        if name == known and rest:
            numbers = numbers_in(rest)
            _law(key, numbers)
            return {key: numbers[0] if key == "M_poisson" else numbers}
    raise AccountingError(_LAWS_IN_WORDS)


def _law(key: str, numbers: Sequence[float]) -> CountDistribution:
    _, how_many, make = _LAWS[key]
    if len(numbers) != how_many:
        raise AccountingError(_LAWS_IN_WORDS)
    return make(*numbers)


def parse_epsilon(value: object) -> float:
    """
    Read a local ε: a number above 0, or "inf".

    Raises:
        AccountingError: It is neither.
    """
    try:
        epsilon = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # from JSON or a command line
    except (TypeError, ValueError, OverflowError):
        epsilon = math.nan
    if not epsilon > 0:
        raise AccountingError("the local epsilon must be a number above 0, or inf")
    return epsilon


def _integral(number: object) -> object:
    """Take 1e6 for a whole number, as JSON does."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


_Whole = Annotated[int, BeforeValidator(_integral)]
_Count = Annotated[_Whole, Field(ge=0)]
_Real = Annotated[float, Field(ge=-1e300, le=1e300)]


@pydantic_dataclass(frozen=True, kw_only=True, config=STRICT)
class Question:
    """
    One query, for ε at a δ or δ at an ε.

    Its fields are the keys in a file: docs/theory/accounting.md, Questions in a file.
    """

    kind: str
    n: _Whole
    k: _Whole | None = None
    eps_l: object = None
    coll: _Real | None = None
    rappor: tuple[_Real, ...] | None = None
    """RAPPOR's F, P, Q and HASHES for one report [EPK14]."""
    M: _Whole = 0
    m: _Real | None = None
    M_shuffler: _Count = 0
    M_binom: tuple[_Real, ...] | None = None
    M_negbin: tuple[_Real, ...] | None = None
    M_poisson: _Real | None = None
    M_groups: tuple[_Real, ...] | None = None
    known_dummies: _Whole = 0
    colluders: _Whole = 0
    skippers: _Count = 0
    eps: _Real | None = None
    delta: _Real | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """
        Check a query's keys.

        Raises:
            AccountingError: A key is unknown, missing, of the wrong type, or breaks a rule.
        """
        return validated(cls, fields, AccountingError, "key")

    @cached_property
    def subject(self) -> Subject:
        """The randomizer."""
        mechanism = "local-hashing" if self.kind == "olh" else self.kind
        if mechanism not in MECHANISMS:
            raise AccountingError(f"the mechanism must be one of olh, {', '.join(MECHANISMS)}")
        if mechanism not in WITH_ALPHABET and (self.k is not None or self.coll is not None):
            raise AccountingError(
                f"{mechanism} has neither an alphabet nor a collision probability"
            )
        if mechanism == _RAPPOR:
            if self.eps_l is not None:
                raise AccountingError("RAPPOR's local epsilon follows from its four numbers")
            match self.rappor or ():
                case (f, p, q, hashes) if hashes.is_integer():
                    return rappor_pair(f, p, q, hashes=int(hashes))
            raise AccountingError("rappor needs its four numbers, F,P,Q,HASHES; HASHES is whole")
        if self.rappor is not None:
            raise AccountingError(f"rappor is for the mechanism rappor; this one is {mechanism}")
        if self.eps_l is None:
            raise AccountingError(
                f"{mechanism} needs a local epsilon: --local-epsilon, or eps_l in a file"
            )
        local_epsilon = parse_epsilon(self.eps_l)
        if mechanism in _OF_EPSILON:
            return _OF_EPSILON[mechanism](local_epsilon)
        if self.k is None:
            raise AccountingError(
                f"{mechanism} needs the size of its alphabet: --alphabet, or k in a file"
            )
        return MatchCountReduction.for_epsilon(
            answers=self.k,
            local_epsilon=local_epsilon,
            hashed=WITH_ALPHABET[mechanism],
            collision=self.coll,
        )

    @cached_property
    def crowd(self) -> AnonymitySet:
        """The users and dummies of the batch."""
        adding = self.n - self.colluders - self.skippers
        if self.n > 0 > adding:
            raise AccountingError(
                f"{self.colluders} colluders and {self.skippers} skippers are more than the "
                f"{self.n} users"
            )
        try:
            each = DummySpec.averaging(self.m or 0.0)
        except TaskError as error:
            raise AccountingError(str(error)) from error
        random_dummies = self._random_dummies()
        if each.law == "fractional" and adding > 0:
            if random_dummies is not None:
                raise AccountingError(
                    f"dummies per user is {self.m}: a fraction is a law of random dummies, and "
                    "another one is given"
                )
            random_dummies = Binomial(adding, each.extra_chance)
        return AnonymitySet(
            users=self.n,
            dummies=self.M + self.M_shuffler + adding * each.per_user,
            random_dummies=random_dummies,
            known_dummies=self.known_dummies,
            colluders=self.colluders,
        )

    def _random_dummies(self) -> CountDistribution | None:
        given = {key: numbers for key in _LAWS if (numbers := getattr(self, key)) is not None}
        if len(given) > 1:
            raise AccountingError(f"{' and '.join(given)} are two laws of random dummies; give one")
        for key, numbers in given.items():
            try:
                return _law(key, numbers if isinstance(numbers, tuple) else [numbers])
            except AccountingError as error:
                raise AccountingError(f"{key}: {error}") from error
        return None

    def answer(self) -> Guarantee:
        """
        Return the bound with its assumptions.

        Raises:
            AccountingError: A number breaks a rule, or the numbers do not fit together.
        """
        subject, crowd = self.subject, self.crowd
        general = isinstance(subject, BlanketPair)
        if (self.delta is None) == (self.eps is None):
            raise AccountingError(
                "give a delta to get epsilon, or a central epsilon to get delta, one of the two: "
                "--delta or --central-epsilon, delta or eps in a file"
            )
        epsilon_of, delta_of = _BOUNDS[type(subject)]
        epsilon = self.eps or 0.0 if self.delta is None else epsilon_of(subject, crowd, self.delta)
        delta = delta_of(subject, crowd, epsilon) if self.delta is None else self.delta
        honest = crowd.users - crowd.colluders
        assumptions = [
            "the shuffler permutes uniformly and does not collude with the analyzer",
            f"{honest} users are honest, {crowd.colluders} others collude",
            f"{crowd.dummies} dummies and {crowd.random_dummies or 'no'} more are in the batch",
            f"the analyzer knows {crowd.known_dummies} of them",
        ]
        if general and crowd.random_dummies is not None:
            assumptions.append("dummies whose number is random are not counted")
        return Guarantee(
            coalition="analyzer+users" if crowd.colluders else "analyzer",
            epsilon=epsilon,
            delta=delta,
            neighbouring=REPLACE_ONE,
            theorem=BLANKET if general else FORMULA_1,
            assumptions=tuple(assumptions),
        )

    def comparison(self) -> tuple[float, list[tuple[str, float | str]]]:
        """
        Return the ε that an attack proves, and the ε of every other bound, or why it has none.

        Raises:
            AccountingError: δ is asked for, or the mechanism is not match-count.
        """
        if self.delta is None:
            raise AccountingError("bounds are compared at a delta; here epsilon is given")
        if isinstance(self.subject, BlanketPair):
            raise AccountingError("bounds are compared for mechanisms that count matches")
        return (
            epsilon_lower(self.subject, self.crowd, self.delta),
            compare(self.subject, self.crowd, self.delta),
        )
