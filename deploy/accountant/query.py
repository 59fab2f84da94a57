"""A question to the accountant, put together from numbers that are typed in or read."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from common.accounting.amplification import delta_upper, epsilon_upper
from common.accounting.anonymity_set import Crowd
from common.accounting.assumptions import FORMULA_1
from common.accounting.count_distributions import (
    Binomial,
    CountLaw,
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
from common.task.dummy_spec import DummySpec

Subject = MatchCountReduction | BlanketPair
"""What accounting knows of a randomizer."""

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
_RAPPOR: Final = "rappor"
MECHANISMS: Final = (*WITH_ALPHABET, *_OF_EPSILON, _RAPPOR)


_LAWS: Final = (
    "a law of random dummies is binomial:TRIALS,CHANCE, poisson:MEAN, negative-binomial:R,MEAN "
    "or groups:SIZE,TRIALS,CHANCE"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rappor:
    """RAPPOR's numbers for one report and one cohort, with its own letters [EPK14]."""

    f: float
    p: float
    q: float
    hashes: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Read `F,P,Q,HASHES`.

        Raises:
            AccountingError: It is not four numbers, the last one whole.
        """
        try:
            f, p, q, hashes = text.split(",")
            return cls(f=float(f), p=float(p), q=float(q), hashes=int(hashes))
        except ValueError as error:
            raise AccountingError("RAPPOR has four numbers: F,P,Q,HASHES") from error


def subject_of(
    mechanism: str,
    local_epsilon: float | None,
    alphabet: int | None = None,
    collision: float | None = None,
    rappor: Rappor | None = None,
) -> Subject:
    """
    Describe a mechanism by name.

    Raises:
        AccountingError: There is no such mechanism, or a number is missing or does not fit it.
    """
    if mechanism not in MECHANISMS:
        raise AccountingError(f"the mechanism must be one of {', '.join(MECHANISMS)}")
    if mechanism not in WITH_ALPHABET and (alphabet is not None or collision is not None):
        raise AccountingError(f"{mechanism} has neither an alphabet nor a collision probability")
    if (mechanism == _RAPPOR) != (rappor is not None):
        raise AccountingError(
            "rappor needs its four numbers: --rappor F,P,Q,HASHES"
            if rappor is None
            else f"--rappor is for the mechanism rappor; this one is {mechanism}"
        )
    if rappor is not None:
        if local_epsilon is not None:
            raise AccountingError("RAPPOR's local epsilon follows from its four numbers")
        return rappor_pair(rappor.f, rappor.p, rappor.q, hashes=rappor.hashes)
    if local_epsilon is None:
        raise AccountingError(
            f"{mechanism} needs a local epsilon: --local-epsilon, or eps_l in a file"
        )
    if mechanism in _OF_EPSILON:
        return _OF_EPSILON[mechanism](local_epsilon)
    if alphabet is None:
        raise AccountingError(
            f"{mechanism} needs the size of its alphabet: --alphabet, or k in a file"
        )
    return MatchCountReduction.for_epsilon(
        answers=alphabet,
        local_epsilon=local_epsilon,
        hashed=WITH_ALPHABET[mechanism],
        collision=collision,
    )


def crowd_of(
    *,
    users: int,
    dummies: int = 0,
    random_dummies: CountLaw | None = None,
    known_dummies: int = 0,
    colluders: int = 0,
    dummies_per_user: float = 0.0,
    skippers: int = 0,
    shuffler_dummies: int = 0,
) -> Crowd:
    """
    Put a crowd together.

    Args:
        users: In the batch, the victim too.
        dummies: Honest dummies in the batch, whoever made them.
        random_dummies: Law of further ones.
        known_dummies: Of all these, those that the adversary can drop.
        colluders: Users whose reports, and whose dummies_per_user, the adversary knows.
        dummies_per_user: What each honest user adds; a fraction is the chance of one more.
        skippers: Honest users who add none.
        shuffler_dummies: Those that the shuffler adds.

    Raises:
        AccountingError: A number breaks a rule.
    """
    for name, value in (("skippers", skippers), ("shuffler dummies", shuffler_dummies)):
        if value < 0:
            raise AccountingError(f"{name} is {value}; it must be at least 0")
    adding = users - colluders - skippers
    if users > 0 > adding:
        raise AccountingError(
            f"{colluders} colluders and {skippers} skippers are more than the {users} users"
        )
    try:
        each = DummySpec.averaging(dummies_per_user)
    except TaskError as error:
        raise AccountingError(str(error)) from error
    if each.law == "fractional" and adding > 0:
        if random_dummies is not None:
            raise AccountingError(
                f"dummies per user is {dummies_per_user}: a fraction is a law of random dummies, "
                "and another one is given"
            )
        random_dummies = Binomial(adding, each.extra_chance)
    return Crowd(
        users=users,
        dummies=dummies + shuffler_dummies + adding * each.per_user,
        random_dummies=random_dummies,
        known_dummies=known_dummies,
        colluders=colluders,
    )


def parse_law(text: str) -> CountLaw:
    """
    Read a law of a random number of dummies.

    Args:
        text: `binomial:TRIALS,CHANCE`, `poisson:MEAN`, `negative-binomial:R,MEAN`, or
            `groups:SIZE,TRIALS,CHANCE` for dummies that are there SIZE at a time.

    Raises:
        AccountingError: It is none of these.
    """
    name, _, rest = text.partition(":")
    try:
        numbers = [float(number) for number in rest.split(",")]
        if name == "binomial" and numbers[0].is_integer():
            return Binomial(int(numbers[0]), *numbers[1:])
        if name == "poisson":
            return Poisson(*numbers)
        if name == "negative-binomial":
            return NegativeBinomial(*numbers)
        if name == "groups" and numbers[0].is_integer() and numbers[1].is_integer():
            return Groups(Binomial(int(numbers[1]), *numbers[2:]), int(numbers[0]))
    except (ValueError, TypeError, IndexError) as error:
        raise AccountingError(_LAWS) from error
    raise AccountingError(_LAWS)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: ε at a δ, or δ at an ε."""

    subject: Subject
    crowd: Crowd
    delta: float | None = None
    central_epsilon: float | None = None

    def __post_init__(self) -> None:
        if (self.delta is None) == (self.central_epsilon is None):
            raise AccountingError(
                "give a delta to get epsilon, or a central epsilon to get delta, one of the two: "
                "--delta or --central-epsilon, delta or eps in a file"
            )

    def answer(self) -> Guarantee:
        """State the bound with everything that it rests on."""
        epsilon, delta = self._bound()
        crowd = self.crowd
        honest = crowd.users - crowd.colluders
        general = isinstance(self.subject, BlanketPair)
        assumptions = [
            "the shuffler permutes uniformly and does not collude with the analyzer",
            f"{honest} users are honest, {crowd.colluders} others collude",
            f"{crowd.dummies - crowd.known_dummies} dummies are in the batch that the analyzer "
            "does not know"
            if crowd.random_dummies is None
            else f"{crowd.dummies} dummies are in the batch and {crowd.random_dummies} more; of "
            f"these the analyzer knows {crowd.known_dummies}",
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

    def _bound(self) -> tuple[float, float]:
        subject, crowd = self.subject, self.crowd
        if self.delta is not None:
            if isinstance(subject, BlanketPair):
                return blanket_epsilon(subject, crowd, self.delta), self.delta
            return epsilon_upper(subject, crowd, self.delta), self.delta
        epsilon = self.central_epsilon or 0.0
        if isinstance(subject, BlanketPair):
            return epsilon, blanket_delta(subject, crowd, epsilon)
        return epsilon, delta_upper(subject, crowd, epsilon)

    def comparison(self) -> tuple[float, list[tuple[str, float | str]]]:
        """
        Give the ε that an attack proves, and what every other bound claims or why it does not.

        Raises:
            AccountingError: It is not ε that is asked for, or the mechanism is not match-count.
        """
        if self.delta is None:
            raise AccountingError("bounds are compared at a delta; here epsilon is given")
        if isinstance(self.subject, BlanketPair):
            raise AccountingError("bounds are compared for mechanisms that count matches")
        return (
            epsilon_lower(self.subject, self.crowd, self.delta),
            compare(self.subject, self.crowd, self.delta),
        )
