"""The parameters of a mechanism for accounting: its privacy blanket, or its local ε alone."""

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.weights import ResponseWeights

MAX_ANSWERS: Final = 10**9
MIN_LOCAL_EPSILON: Final = 1e-9
"""Limits of the tested range of l and of the local ε."""

Answers = TypeVar("Answers", float, NDArray[np.float64])
ThirdValue = Literal["exclusive", "independent", "none", "absent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchCountReduction:
    """
    A mechanism that draws a report from the blanket, or from the blanket given the user's value.

    With probability `blanket` a report is drawn independently of its input (a dummy always is) and
    supports any given value with probability 1/l; with probability `signal` = 1 - `blanket` it is
    drawn from the same distribution, conditioned on supporting the user's value [BBGN19]. If GRR
    gives the true answer with probability p and any other with q, these are l·q and p - q.
    """

    answers: float
    """Alphabet size l: items of GRR, buckets of local hashing, 1/q of a unary encoding."""
    local_epsilon: float
    """Local ε, rounded up; infinite if reports carry no noise."""
    blanket: float
    signal: float
    collision: float
    """Probability that a blanket report that supports one given value also supports another: 0 for
    GRR, 1/l for pairwise independent hashing that can draw every seed. Fewer collisions are less
    private, so 0 gives an upper bound where the probability is unknown."""
    third_value: ThirdValue
    """How a third value's support depends on that of two others, if attacks can use it.
    "exclusive": a report that supports two of the three supports all, as none of GRR does, and as
    hashing over a field does for values on a line. "absent": each report is one of two answers,
    which GRR draws with the weights `true` and `other`."""

    def __post_init__(self) -> None:
        if not 0 <= self.collision <= 1:
            raise AccountingError(
                f"the collision probability is {self.collision}; it must lie between 0 and 1"
            )

    @property
    def match_count(self) -> Self:
        """The reduction itself: the formulas for such counts apply."""
        return self

    @property
    def two_items(self) -> bool:
        """True if each report is one of two answers, with noise: a batch shows one count."""
        return self.third_value == "absent" and self.blanket > 0

    @property
    def has_third(self) -> bool:
        """True if attacks can let all others hold a third value."""
        return self.third_value in {"exclusive", "independent"}

    @property
    def pairwise_independent(self) -> bool:
        """True if a blanket report supports two given values independently."""
        return self.collision == 1 / self.answers

    @classmethod
    def for_epsilon(
        cls, *, answers: int, local_epsilon: float, hashed: bool, collision: float | None = None
    ) -> Self:
        """
        Describe randomized response over `answers` answers with odds exactly e^local_epsilon : 1.

        blanket = l / (e^ε + l - 1) and signal = (e^ε - 1) / (e^ε + l - 1) [BBGN19]. Each has its
        own formula: 1 - blanket loses every digit at small ε, and 1 - signal at large ε.

        If `hashed`, a report holds a seed and the randomized bucket of the hashed value, and
        `collision` is that of the hash family, by default 1/answers; otherwise it is 0. The local ε
        may be infinite. Raises AccountingError if a number is out of range, or collision is given
        without hashing.
        """
        if not 2 <= answers <= MAX_ANSWERS:  # noqa: PLR2004  # one answer carries no information
            raise AccountingError(f"alphabet is {answers}; it must be 2 .. {MAX_ANSWERS}")
        if not local_epsilon >= MIN_LOCAL_EPSILON:
            raise AccountingError(
                f"local_epsilon is {local_epsilon}; it must be at least {MIN_LOCAL_EPSILON}"
            )
        collision, third_value = _relations(answers, collision, hashed=hashed)
        total = 1 + (answers - 1) * math.exp(-local_epsilon)
        return cls(
            answers=answers,
            local_epsilon=local_epsilon,
            blanket=blanket_of(answers, local_epsilon),
            signal=-math.expm1(-local_epsilon) / total,
            collision=collision,
            third_value=third_value,
        )

    @classmethod
    def for_weights(
        cls, *, answers: int, weights: ResponseWeights, hashed: bool, collision: float | None = None
    ) -> Self:
        """
        Describe randomized response with integer weights.

        Without noise (weights 1 and 0) the blanket is 0, the signal 1 and the local ε infinite.

        Arguments and errors are those of `for_epsilon`. Raises TaskError if the sum of the weights
        reaches 2^63.
        """
        collision, third_value = _relations(answers, collision, hashed=hashed)
        total = weights.total(answers)
        return cls(
            answers=answers,
            local_epsilon=weights.local_epsilon,
            blanket=answers * weights.other / total,
            signal=(weights.true - weights.other) / total,
            collision=collision,
            third_value=third_value,
        )

    @classmethod
    def of_support_sets(
        cls,
        *,
        answers: float,
        local_epsilon: float,
        blanket: float,
        signal: float,
        independent: bool,
    ) -> Self:
        """
        Describe a randomizer that draws a report from U, or from U given support for its input.

        A report supports a set of values; under U it supports each with probability 1/l. In a unary
        encoding [WBLJ17] U sets every bit with probability q: l = 1/q. Relative to U a report has
        density p/q if the bit of the user's item is set, and the lower γ = (1-p)/(1-q) otherwise.

        If `independent`, U supports all values independently: collision 1/l. If not, no report
        supports both of the values farthest apart: collision 0 bounds every pair. Raises
        AccountingError if answers or local_epsilon is out of range.
        """
        if not answers <= MAX_ANSWERS:
            raise AccountingError(f"l = 1/q is {answers:.6g}; it must be at most {MAX_ANSWERS}")
        if not local_epsilon >= MIN_LOCAL_EPSILON:
            raise AccountingError(
                f"local_epsilon is {local_epsilon}; it must be at least {MIN_LOCAL_EPSILON}"
            )
        return cls(
            answers=answers,
            local_epsilon=local_epsilon,
            blanket=blanket,
            signal=signal,
            collision=1 / answers if independent else 0.0,
            third_value="independent" if independent else "none",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PureReduction:
    """A mechanism accounted for by its local ε alone, as any ε-LDP randomizer."""

    match_count: ClassVar[None] = None

    local_epsilon: float
    """Local ε, rounded up; finite."""

    def __post_init__(self) -> None:
        if not MIN_LOCAL_EPSILON <= self.local_epsilon < math.inf:
            raise AccountingError(
                f"local epsilon is {self.local_epsilon}; it must be at least {MIN_LOCAL_EPSILON} "
                "and finite"
            )


Reduction = MatchCountReduction | PureReduction


def blanket_of(answers: Answers, local_epsilon: float) -> Answers:
    """Return the blanket l / (e^ε + l - 1) of randomized response over l answers [BBGN19]."""
    inverse = math.exp(-local_epsilon)
    return answers * inverse / (1 + (answers - 1) * inverse)


def support_of(answers: Answers, blanket: Answers, collision: Answers) -> tuple[Answers, ...]:
    """Return the chances that a report supports its user's value, another one, and a dummy one."""
    by_chance, signal = blanket / answers, 1 - blanket
    return signal + by_chance, signal * collision + by_chance, 1 / answers


def _relations(answers: int, collision: float | None, *, hashed: bool) -> tuple[float, ThirdValue]:
    """Return `collision` and `third_value`; raise AccountingError for collision without hashing."""
    third = answers > 2  # noqa: PLR2004  # two items, or a line over two elements, have no third
    if hashed:
        aligned: ThirdValue = "exclusive" if third and collision is None else "independent"
        return 1 / answers if collision is None else collision, aligned
    if collision is not None:
        raise AccountingError("a collision probability may be stated only for hashing")
    return 0.0, "exclusive" if third else "absent"
