"""`shuffledp account`: what the accountant says about numbers that are typed in or read."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from common.accounting.amplification import delta_upper, epsilon_upper
from common.accounting.attack import epsilon_lower
from common.accounting.blanket import blanket_delta, blanket_epsilon
from common.accounting.blanket_pairs import BlanketPair, laplace_pair
from common.accounting.coalitions import FORMULA_1
from common.accounting.comparison import compare
from common.accounting.counts import Binomial, CountLaw, NegativeBinomial, Poisson
from common.accounting.crowd import Crowd
from common.errors import AccountingError
from common.guarantee import REPLACE_ONE, Guarantee, rounded_down, rounded_up
from common.mechanisms.randomizers import duchi, optimized_unary, piecewise, symmetric_unary
from common.mechanisms.reduction import MatchCountReduction

Subject = MatchCountReduction | BlanketPair
"""What accounting knows of a randomizer."""

BLANKET: Final = "privacy blanket, general form, rounded up ([BBGN19]; common/accounting)"

_WITH_ALPHABET: Final = {"grr": False, "local-hashing": True}
"""Whether the answer is to a hashed value."""
_OF_EPSILON: Final[Mapping[str, Callable[[float], Subject]]] = {
    "symmetric-unary": symmetric_unary,
    "optimized-unary": optimized_unary,
    "duchi": duchi,
    "piecewise": piecewise,
    "laplace": laplace_pair,
}
MECHANISMS: Final = (*_WITH_ALPHABET, *_OF_EPSILON)


def subject_of(
    mechanism: str, local_epsilon: float, alphabet: int | None, collision: float | None = None
) -> Subject:
    """
    Describe a mechanism by name.

    Raises:
        AccountingError: There is no such mechanism, or a number does not fit it.
    """
    if mechanism in _WITH_ALPHABET:
        if alphabet is None:
            raise AccountingError(f"{mechanism} needs the size of its alphabet")
        return MatchCountReduction.for_epsilon(
            answers=alphabet,
            local_epsilon=local_epsilon,
            hashed=_WITH_ALPHABET[mechanism],
            collision=collision,
        )
    if mechanism not in _OF_EPSILON:
        raise AccountingError(f"the mechanism must be one of {', '.join(MECHANISMS)}")
    if alphabet is not None or collision is not None:
        raise AccountingError(f"{mechanism} has neither an alphabet nor a collision probability")
    return _OF_EPSILON[mechanism](local_epsilon)


def crowd_of(  # noqa: PLR0917
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
    if not 0 <= dummies_per_user < math.inf:
        raise AccountingError(f"dummies per user is {dummies_per_user}; it must be at least 0")
    adding = users - colluders - skippers
    if users > 0 > adding:
        raise AccountingError(
            f"{colluders} colluders and {skippers} skippers are more than the {users} users"
        )
    certain = math.floor(dummies_per_user)
    chance = dummies_per_user - certain
    if chance and adding:
        if random_dummies is not None:
            raise AccountingError(
                f"dummies per user is {dummies_per_user}: a fraction is a law of random dummies, "
                "and another one is given"
            )
        random_dummies = Binomial(adding, chance)
    return Crowd(
        users=users,
        dummies=dummies + shuffler_dummies + adding * certain,
        random_dummies=random_dummies,
        known_dummies=known_dummies,
        colluders=colluders,
    )


def parse_law(text: str) -> CountLaw:
    """
    Read a law of a random number of dummies.

    Args:
        text: `binomial:TRIALS,CHANCE`, `poisson:MEAN` or `negative-binomial:R,MEAN`.

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
    except (ValueError, TypeError) as error:
        raise AccountingError(_LAWS) from error
    raise AccountingError(_LAWS)


_LAWS: Final = (
    "a law of random dummies is binomial:TRIALS,CHANCE or poisson:MEAN or negative-binomial:R,MEAN"
)


def parse_epsilon(value: object) -> float:
    """
    Read a local ε: a number above 0, or "inf".

    Raises:
        AccountingError: It is neither.
    """
    try:
        epsilon = float(value)  # type: ignore[arg-type]  # from JSON or a command line
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
            raise AccountingError("give delta to get epsilon, or central epsilon to get delta")

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
        if self.delta is None or isinstance(self.subject, BlanketPair):
            raise AccountingError(
                "bounds are compared at a delta, for mechanisms that count matches"
            )
        return (
            epsilon_lower(self.subject, self.crowd, self.delta),
            compare(self.subject, self.crowd, self.delta),
        )


def show(
    guarantee: Guarantee, answer: Mapping[str, Any], local_epsilon: str, console: Console
) -> None:
    """Print an answer for a reader: the bound as it is, then rounded up with all it rests on."""
    name = "epsilon_upper" if "epsilon_upper" in answer else "delta_upper"
    console.print(
        f"{name} = {answer[name]}\n"
        f"({rounded_up(guarantee.epsilon)}, {rounded_up(guarantee.delta)})-differential privacy "
        f"against the {guarantee.coalition}, {guarantee.neighbouring}, if "
        f"{'; '.join(guarantee.assumptions)}.\n"
        f"By the {guarantee.theorem}.\n"
        f"Against shuffler and analyzer together: epsilon = {local_epsilon}, delta = 0.",
        highlight=False,
    )
    if "compare" not in answer:
        return
    table = Table(title=f"Central epsilon at delta {guarantee.delta:g}, by every bound")
    table.add_column("bound")
    table.add_column("epsilon, or why none")
    table.add_row("this accountant, an upper bound", rounded_up(guarantee.epsilon))
    table.add_row("proven by an attack, a lower bound", rounded_down(answer["epsilon_lower"]))
    for row in answer["compare"]:
        said = row.get("refused") or rounded_up(float(row["epsilon"]))
        table.add_row(escape(row["bound"]), escape(str(said)))
    console.print(table)
