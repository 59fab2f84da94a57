"""A query to the accountant: a mechanism, a batch, and δ or ε."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, Final, Literal, Self

import scipy
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from shuffledp.common.accounting import count_distributions as counts
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.binomial import smaller_tail
from shuffledp.common.accounting.guarantees import theorem_of
from shuffledp.common.accounting.two_items import amplified
from shuffledp.common.errors import AccountingError, TaskError, UsageError, ValueRangeError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.messages.guarantee import REPLACE_ONE, Guarantee
from shuffledp.common.messages.submission import parse_numbers
from shuffledp.common.runtime.validation import STRICT, validated
from shuffledp.common.task.uniform_dummies import averaging
from shuffledp.lab.bounds import general_blanket, randomizers
from shuffledp.lab.bounds.attack import epsilon_lower
from shuffledp.lab.bounds.other_bounds import compare

Subject = MatchCountReduction | general_blanket.BlanketPair
_Hashing = Literal["grr", "local-hashing"]
Mechanism = Literal[_Hashing, "symmetric-unary", "optimized-unary", "duchi", "piecewise", "laplace"]
"""Mechanisms that a local ε describes."""

_BLANKET: Final = "privacy blanket, general form, rounded up ([BBGN19]; lab/bounds)"
_HASHED: Final = {"grr": False, "local-hashing": True}
"""Mechanisms with an alphabet, and whether they hash values."""
_OF_EPSILON: Final[Mapping[str, Callable[[float], Subject]]] = {
    "symmetric-unary": randomizers.symmetric_unary,
    "optimized-unary": randomizers.optimized_unary,
    "duchi": randomizers.duchi,
    "piecewise": randomizers.piecewise,
    "laplace": general_blanket.laplace_pair,
}
_Bounds = tuple[Callable[[float], float], Callable[[float], float], str]
"""Functions for ε at a δ and for δ at an ε, and their theorem."""


def _bounds(subject: Subject, anonymity_set: AnonymitySet) -> _Bounds:
    if isinstance(subject, general_blanket.BlanketPair):
        find = (general_blanket.blanket_epsilon, general_blanket.blanket_delta)
        epsilon_of, delta_of = (partial(each, subject, anonymity_set) for each in find)
        return epsilon_of, delta_of, _BLANKET
    release = amplified(subject, anonymity_set)
    return release.epsilon, release.delta, theorem_of(release)


_PROVEN_FOR: Final = {
    "exclusive": "hashing over a field with three items on a line",
    "independent": "hash functions that are independent on three items",
}
"""Hash families that an attack's lower bound is proven for, by what it knows of a third value."""
MECHANISMS: Final = (*_HASHED, *_OF_EPSILON, "rappor")
_LARGEST: Final = 1e300
"""Largest number in a query, so that sums stay finite."""
_DISTRIBUTION_RULE: Final = (
    "a distribution of random dummies must be binomial:TRIALS,PROBABILITY, poisson:MEAN, "
    "negative-binomial:R,MEAN or groups:SIZE,TRIALS,PROBABILITY"
)
_KEYS: Final = {
    "binomial": "M_binom",
    "negative-binomial": "M_negbin",
    "poisson": "M_poisson",
    "groups": "M_groups",
}
"""Keys of the distributions in a file, by their names on the command line."""


def parse_distribution(text: str) -> dict[str, Any]:
    """Parse a distribution such as `poisson:3` to {key: numbers}, or raise AccountingError."""
    name, _, rest = text.partition(":")
    if name not in _KEYS or not rest:
        raise AccountingError(_DISTRIBUTION_RULE)
    numbers = parse_numbers(rest, _DISTRIBUTION_RULE)
    return {_KEYS[name]: numbers[0] if (name, len(numbers)) == ("poisson", 1) else numbers}


@dataclass(frozen=True, slots=True)
class Poisson:
    """Poisson distribution with a given mean."""

    mean: float

    def __post_init__(self) -> None:
        counts.check_between("the mean", self.mean, 0, counts.MAX_COUNT)

    def tails(self, outcome: Vector) -> tuple[Vector, Vector]:
        """Return both tails: P(X ≤ k) = Γ(k+1, mean) / k! [DLMF, 8.4.10]."""
        lower, upper = scipy.special.gammaincc, scipy.special.gammainc
        return smaller_tail(lower, upper, (outcome + 1, self.mean), outcome, mean=self.mean)

    def probabilities(self, outcome: Vector) -> Vector:
        """Return P(X = outcome)."""
        return scipy.stats.poisson.pmf(outcome, self.mean)

    def thinned(self, share: float) -> "Poisson":
        """Return the distribution after each unit is kept with probability `share`."""
        return Poisson(self.mean * share)


def _distribution(key: str, numbers: tuple[float, ...]) -> counts.CountDistribution:
    """Return the distribution of a query's key and numbers, or raise AccountingError."""
    match key, numbers:
        case "M_poisson", (mean,):
            return Poisson(mean)
        case "M_negbin", (r, mean):
            return counts.NegativeBinomial(r, mean)
        case "M_binom", (trials, chance) if trials.is_integer():
            return counts.Binomial(int(trials), chance)
        case "M_groups", (size, *distribution) if size.is_integer():
            return counts.Groups(_distribution("M_binom", tuple(distribution)), int(size))
    raise AccountingError(_DISTRIBUTION_RULE)


def _is_field_size(number: int) -> bool:
    """Return whether a number is a power of a prime: all of its divisors are of its least one."""
    least = next((n for n in range(2, math.isqrt(number) + 1) if number % n == 0), number)
    while number % least == 0:
        number //= least
    return number == 1


def _integral(number: object) -> object:
    """Convert a float without a fraction, such as 1e6, to an int."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _bounded(number: float) -> float:
    if not abs(number) <= _LARGEST:
        raise ValueError(f"must be a number from {-_LARGEST:g} to {_LARGEST:g}")
    return number


def _infinite(number: object) -> object:
    return math.inf if number == "inf" else number


_Whole = Annotated[int, BeforeValidator(_integral)]
_LocalEpsilon = Annotated[float, BeforeValidator(_infinite), Field(gt=0)]
_Count = Annotated[_Whole, Field(ge=0)]
_Real = Annotated[float, AfterValidator(_bounded)]


@pydantic_dataclass(frozen=True, kw_only=True, config=STRICT)
class Query:
    """A query for ε at a δ or for δ at an ε; docs/theory/accounting.md describes its keys."""

    kind: str
    n: _Whole
    k: _Whole | None = None
    eps_l: _LocalEpsilon | None = None
    coll: _Real | None = None
    rappor: tuple[_Real, ...] | None = None
    """RAPPOR's f, p, q and number of hashes, for one report [EPK14]."""
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
        """Return the query with these keys; raise AccountingError if one breaks a rule."""
        return validated(cls, fields, AccountingError, "key")

    @cached_property
    def subject(self) -> Subject:
        """The randomizer; raises AccountingError if its parameters are missing or do not fit."""
        mechanism = "local-hashing" if self.kind == "olh" else self.kind
        if mechanism not in MECHANISMS:
            raise AccountingError(f"unknown mechanism; the mechanisms are {', '.join(MECHANISMS)}")
        if mechanism not in _HASHED and (self.k is not None or self.coll is not None):
            raise AccountingError(
                f"{mechanism} has neither an alphabet nor a collision probability; remove them"
            )
        if mechanism == "rappor":
            if self.eps_l is not None:
                raise AccountingError("rappor's local epsilon follows from F,P,Q,HASHES; remove it")
            match self.rappor or ():
                case (f, p, q, hashes) if hashes.is_integer():
                    return general_blanket.rappor_pair(f, p, q, hashes=int(hashes))
            raise AccountingError("rappor needs four numbers, F,P,Q,HASHES; HASHES must be whole")
        if self.rappor is not None:
            raise AccountingError(f"the mechanism is {mechanism}; F,P,Q,HASHES are for rappor only")
        if self.eps_l is None:
            raise AccountingError(
                f"{mechanism} needs a local epsilon: local_epsilon, or eps_l in a file"
            )
        if mechanism in _OF_EPSILON:
            return _OF_EPSILON[mechanism](self.eps_l)
        if self.k is None:
            raise AccountingError(
                f"{mechanism} needs the size of its alphabet: alphabet=SIZE, or k in a file"
            )
        return MatchCountReduction.for_epsilon(
            answers=self.k, local_epsilon=self.eps_l, hashed=_HASHED[mechanism], collision=self.coll
        )

    def attacked(self, subject: MatchCountReduction) -> tuple[MatchCountReduction, str]:
        """Return the subject of attacks, and the hash family they are on, or ""."""
        if self.kind not in {"local-hashing", "olh"}:
            return subject, ""
        if not _is_field_size(round(subject.answers)):  # no values lie on a line
            subject = replace(subject, third_value="independent")
        return subject, _PROVEN_FOR[subject.third_value]

    @property
    def local_epsilon(self) -> float:
        """The local ε that the query states, or else the randomizer's, an upper bound in floats."""
        return self.subject.local_epsilon if self.eps_l is None else self.eps_l

    @cached_property
    def anonymity_set(self) -> AnonymitySet:
        """The batch's users and dummies; raises AccountingError if the numbers do not fit."""
        adding = self.n - self.colluders - self.skippers
        if self.n > 0 > adding:
            raise AccountingError(
                f"{self.colluders} colluders and {self.skippers} skippers are more than the "
                f"{self.n} users"
            )
        try:
            per_user = averaging(self.m or 0.0)
        except TaskError as error:
            raise AccountingError(str(error)) from error
        random_dummies = self._random_dummies()
        if per_user.trials and adding > 0:
            if random_dummies is not None:
                raise AccountingError(
                    f"dummies per user is {self.m}; it must be whole if a distribution of random "
                    "dummies is given"
                )
            random_dummies = counts.Binomial(adding, per_user.extra_probability)
        return AnonymitySet(
            users=self.n,
            dummies=self.M + self.M_shuffler + adding * per_user.per_user,
            random_dummies=random_dummies,
            known_dummies=self.known_dummies,
            colluders=self.colluders,
        )

    def _random_dummies(self) -> counts.CountDistribution | None:
        keys = _KEYS.values()
        given = {key: numbers for key in keys if (numbers := getattr(self, key)) is not None}
        if len(given) > 1:
            raise AccountingError(
                f"{' and '.join(given)} are given; give only one distribution of random dummies"
            )
        for key, numbers in given.items():
            try:
                return _distribution(key, numbers if isinstance(numbers, tuple) else (numbers,))
            except AccountingError as error:
                raise AccountingError(f"{key}: {error}") from error
        return None

    def answer(self) -> Guarantee:
        """Return the guarantee that answers the query, or raise AccountingError."""
        subject, anonymity_set = self.subject, self.anonymity_set
        general = isinstance(subject, general_blanket.BlanketPair)
        if (self.delta is None) == (self.eps is None):
            raise AccountingError(
                "give one of delta=DELTA, for epsilon, and central_epsilon, for delta; in a file, "
                "give delta or eps"
            )
        epsilon_of, delta_of, theorem = _bounds(subject, anonymity_set)
        if self.delta is None:
            epsilon = self.eps or 0.0
            delta = delta_of(epsilon)
        else:
            epsilon = min(epsilon_of(self.delta), self.local_epsilon)
            delta = self.delta
        random_dummies = anonymity_set.random_dummies
        honest = anonymity_set.users - anonymity_set.colluders
        assumptions = [
            "the shuffler permutes uniformly and does not collude with the analyzer",
            f"{honest:,} users are honest and {anonymity_set.colluders:,} collude",
            f"the batch has {anonymity_set.dummies:,} dummies",
            f"the analyzer recognizes {anonymity_set.known_dummies:,} dummies",
        ]
        if random_dummies is not None:
            ignored = ", which this bound ignores" * general
            assumptions.append(f"the batch has {random_dummies} further dummies{ignored}")
        return Guarantee(
            coalition="analyzer+users" if anonymity_set.colluders else "analyzer",
            epsilon=epsilon,
            delta=delta,
            neighbouring=REPLACE_ONE,
            theorem=theorem,
            assumptions=tuple(assumptions),
        )

    def comparison(self) -> dict[str, Any]:
        """Return an attack's lower bound and published bounds, or the reason for none, as JSON."""
        if self.delta is None:
            return {"compare": "bounds can be compared at a delta, but epsilon is given"}
        if isinstance(self.subject, general_blanket.BlanketPair):
            names = ", ".join(_HASHED)
            return {"compare": f"bounds can be compared only for {names}, not for {self.kind}"}
        attacked, family = self.attacked(self.subject)
        lower = epsilon_lower(attacked, self.anonymity_set, self.delta)
        return {
            "epsilon_lower": lower,
            **({"proven_for": family} if family and lower else {}),
            "compare": [
                {"bound": name, ("refused" if isinstance(bound, str) else "epsilon"): bound}
                for name, bound in compare(self.subject, self.anonymity_set, self.delta)
            ],
        }


_OPTIONS: Final = {
    "kind": "mechanism",
    "n": "users",
    "k": "alphabet",
    "eps_l": "local_epsilon",
    "coll": "collision",
    "rappor": "rappor",
    "M": "dummies",
    "m": "dummies_per_user",
    "M_shuffler": "shuffler_dummies",
    "known_dummies": "known_dummies",
    "colluders": "colluders",
    "skippers": "skippers",
    "eps": "central_epsilon",
    "delta": "delta",
}
"""Options of `shuffledp account`, by key of a file."""


def ask(options: Mapping[str, Any]) -> tuple[Query, Guarantee]:
    """
    Return the query that options of `shuffledp account` state, and its answer; others are ignored.

    Raises UsageError, which names the option.
    """
    fields = {key: options[option] for key, option in _OPTIONS.items() if option in options}
    try:
        if isinstance(rappor := fields.get("rappor"), str):
            fields["rappor"] = parse_numbers(rappor, "rappor must be F,P,Q,HASHES")
        if (random_dummies := options.get("random_dummies")) is not None:
            fields |= parse_distribution(random_dummies)
        query = Query.read(fields)
        return query, query.answer()
    except (AccountingError, ValueRangeError) as error:
        rule = re.sub(r", or \w+ in a file$", "", str(error))
        raise UsageError(re.sub(r"^(\w+)(?= is | must |: )", _option, rule)) from error


def _option(name: re.Match[str]) -> str:
    """Return the option for a key or parameter at the start of a message."""
    key = "random_dummies" if name[0].startswith("M_") and name[0] not in _OPTIONS else name[0]
    option = _OPTIONS.get(key, key)
    known = option in {*_OPTIONS.values(), "random_dummies"}
    return {"users": "n_users"}.get(option, option) if known else key
