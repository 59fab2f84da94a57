"""What accounting needs to know of a match-count mechanism: how much of a report is blanket."""

import math
from dataclasses import dataclass
from typing import Final, Self

from common.errors import AccountingError
from common.mechanisms.response_weights import ResponseWeights

MAX_ANSWERS: Final = 10**9
MIN_LOCAL_EPSILON: Final = 1e-9
"""Ranges that accounting has been checked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchCountReduction:
    """
    A mechanism whose report supports its own value with probability p and others with q < p.

    With probability `blanket` = l·q a report is uniform over l answers and independent of its
    input (a dummy always is); with probability `signal` = p - q it says the truth
    [BBGN19]. The two add to 1.
    """

    answers: int
    """l: the alphabet of GRR, the buckets of local hashing."""
    local_epsilon: float
    """ln(p / q), rounded up; infinite if reports carry no noise."""
    blanket: float
    signal: float
    pairwise_independent: bool
    """
    Whether a blanket report supports two given values with probability exactly 1/l² (hashing with
    a pairwise independent family that may draw every seed) rather than 0 (one histogram). Where
    it is not known, False gives an upper bound for any pair.
    """

    @classmethod
    def for_epsilon(cls, *, answers: int, local_epsilon: float, pairwise_independent: bool) -> Self:
        """
        Describe randomized response over `answers` answers with ratio exactly e^local_epsilon.

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
        inverse = math.exp(-local_epsilon)
        total = 1 + (answers - 1) * inverse
        return cls(
            answers=answers,
            local_epsilon=local_epsilon,
            blanket=answers * inverse / total,
            signal=-math.expm1(-local_epsilon) / total,
            pairwise_independent=pairwise_independent,
        )

    @classmethod
    def for_weights(
        cls, *, answers: int, weights: ResponseWeights, pairwise_independent: bool
    ) -> Self:
        """Describe randomized response with integer weights."""
        total = weights.total(answers)
        return cls(
            answers=answers,
            local_epsilon=weights.local_epsilon,
            blanket=answers * weights.other / total,
            signal=(weights.true - weights.other) / total,
            pairwise_independent=pairwise_independent,
        )
