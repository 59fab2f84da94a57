"""What accounting needs to know of a mechanism: how much of a report is blanket, or only its ε."""

import math
from dataclasses import dataclass
from typing import Final, Literal, Self

from common.errors import AccountingError
from common.mechanisms.weights import ResponseWeights

MAX_ANSWERS: Final = 10**9
MIN_LOCAL_EPSILON: Final = 1e-9
"""Ranges that accounting has been checked for."""

ThirdValue = Literal["exclusive", "independent", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchCountReduction:
    """
    A mechanism whose report supports its own value with probability p and others with q < p.

    With probability `blanket` = l·q a report is drawn independently of its input (a dummy always
    is) and then supports any given value with probability 1/l; with probability `signal` = p - q
    it is drawn likewise, but from what supports the true value [BBGN19]. The two add to 1.
    """

    answers: float
    """l: the alphabet of GRR, the buckets of local hashing; 1/q of a unary encoding."""
    local_epsilon: float
    """ln(p / q), rounded up; infinite if reports carry no noise."""
    blanket: float
    signal: float
    collision: float
    """
    Probability that a blanket report which supports one given value supports another: 0 in one
    histogram, 1/l for hashing with a pairwise independent family that may draw every seed. The
    less, the less private: 0 is an upper bound for any pair where it is not known.
    """
    third_value: ThirdValue
    """How a third value's support relates to the two: what an attack may rest on."""

    def __post_init__(self) -> None:
        if not 0 <= self.collision <= 1:
            raise AccountingError(
                f"the collision probability is {self.collision}; it must lie between 0 and 1"
            )

    @property
    def pairwise_independent(self) -> bool:
        """Whether a blanket report supports two given values independently."""
        return self.collision == 1 / self.answers

    @classmethod
    def for_epsilon(
        cls,
        *,
        answers: int,
        local_epsilon: float,
        hashed: bool,
        collision: float | None = None,
    ) -> Self:
        """
        Describe randomized response over `answers` answers with ratio exactly e^local_epsilon.

        Args:
            answers: The alphabet of GRR, the buckets of local hashing.
            local_epsilon: Above 0; may be infinite.
            hashed: Whether the answer is that to a hashed value, under a seed in the report.
            collision: Of the hash family; without it, 1/answers.

        blanket = l / (e^ε + l - 1) and signal = (e^ε - 1) / (e^ε + l - 1), each from its own
        formula: 1 - blanket would lose every digit at small ε, and 1 - signal at large.

        Raises:
            AccountingError: answers or local_epsilon are out of range.
        """
        if not 2 <= answers <= MAX_ANSWERS:  # noqa: PLR2004  # one answer says nothing
            raise AccountingError(f"the alphabet is {answers}; it must be 2 .. {MAX_ANSWERS}")
        if not local_epsilon >= MIN_LOCAL_EPSILON:
            raise AccountingError(
                f"local epsilon is {local_epsilon}; it must be at least {MIN_LOCAL_EPSILON}"
            )
        if collision is not None and not hashed:
            raise AccountingError("only hashing has a collision probability of its own")
        inverse = math.exp(-local_epsilon)
        total = 1 + (answers - 1) * inverse
        uniform = 1 / answers if hashed else 0.0
        return cls(
            answers=answers,
            local_epsilon=local_epsilon,
            blanket=answers * inverse / total,
            signal=-math.expm1(-local_epsilon) / total,
            collision=uniform if collision is None else collision,
            third_value=_third_value(answers, hashed=hashed),
        )

    @classmethod
    def for_weights(
        cls,
        *,
        answers: int,
        weights: ResponseWeights,
        hashed: bool,
        collision: float | None = None,
    ) -> Self:
        """
        Describe randomized response with integer weights.

        Without noise (weights 1 and 0) the blanket is 0, the signal 1 and the local ε infinite.

        Args:
            answers: The alphabet of GRR, the buckets of local hashing; at least 2.
            weights: Of one answer.
            hashed: Whether the answer is that to a hashed value, under a seed in the report.
            collision: Of the hash family; without it, 1/answers.

        Raises:
            TaskError: The weights of all answers do not stay below 2^63.
        """
        total = weights.total(answers)
        uniform = 1 / answers if hashed else 0.0
        return cls(
            answers=answers,
            local_epsilon=weights.local_epsilon,
            blanket=answers * weights.other / total,
            signal=(weights.true - weights.other) / total,
            collision=uniform if collision is None else collision,
            third_value=_third_value(answers, hashed=hashed),
        )

    @classmethod
    def of_independent_bits(
        cls, *, answers: float, local_epsilon: float, blanket: float, signal: float
    ) -> Self:
        """
        Describe a unary encoding: one bit an item, each set independently of the others.

        U sets every bit with chance q [WBLJ17]; a report supports the items whose bits are set. The
        own bit is set with p > q: γ = (1-p)/(1-q), l = 1/q, and two values collide with chance 1/l.

        Args:
            answers: l = 1/q.
            local_epsilon: ln(p(1-q) / q(1-p)), rounded up.
            blanket: γ, from a formula of its own.
            signal: (p-q)/(1-q), from a formula of its own.

        Raises:
            AccountingError: answers or local_epsilon are out of range.
        """
        return cls._of_any_alphabet(
            answers=answers,
            local_epsilon=local_epsilon,
            blanket=blanket,
            signal=signal,
            collision=1 / answers,
            third_value="independent",
        )

    @classmethod
    def of_intervals(
        cls, *, answers: float, local_epsilon: float, blanket: float, signal: float
    ) -> Self:
        """
        Describe a report that is uniform, or uniform within an interval around the value.

        The intervals of the two values farthest apart are disjoint: collision 0, which bounds every
        pair.

        Args:
            answers: l, how much longer the whole range is than an interval.
            local_epsilon: ln of the ratio of the two densities, rounded up.
            blanket: γ, from a formula of its own.
            signal: 1 - γ, from a formula of its own.

        Raises:
            AccountingError: answers or local_epsilon are out of range.
        """
        return cls._of_any_alphabet(
            answers=answers,
            local_epsilon=local_epsilon,
            blanket=blanket,
            signal=signal,
            collision=0.0,
            third_value="none",
        )

    @classmethod
    def _of_any_alphabet(
        cls,
        *,
        answers: float,
        local_epsilon: float,
        blanket: float,
        signal: float,
        collision: float,
        third_value: ThirdValue,
    ) -> Self:
        if not answers <= MAX_ANSWERS:
            raise AccountingError(f"l = 1/q is {answers:.6g}; it must be at most {MAX_ANSWERS}")
        if not local_epsilon >= MIN_LOCAL_EPSILON:
            raise AccountingError(
                f"local epsilon is {local_epsilon}; it must be at least {MIN_LOCAL_EPSILON}"
            )
        return cls(
            answers=answers,
            local_epsilon=local_epsilon,
            blanket=blanket,
            signal=signal,
            collision=collision,
            third_value=third_value,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PureReduction:
    """A mechanism of which nothing but its local ε is used: every ε-LDP randomizer has one."""

    local_epsilon: float
    """Rounded up; finite."""

    def __post_init__(self) -> None:
        if not MIN_LOCAL_EPSILON <= self.local_epsilon < math.inf:
            raise AccountingError(
                f"local epsilon is {self.local_epsilon}; it must be at least {MIN_LOCAL_EPSILON} "
                "and finite"
            )


Reduction = MatchCountReduction | PureReduction


def _third_value(answers: int, *, hashed: bool) -> ThirdValue:
    if hashed:
        return "independent"
    return "exclusive" if answers > 2 else "none"  # noqa: PLR2004  # two values are all there are
