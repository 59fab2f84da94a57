"""
Match-count reductions of randomizers other than randomized response and hashing, in floats.

Each randomizer mixes a distribution U with U given that the report supports the value, so formula 1
bounds it too, with a real number l. A dummy must be drawn from U. Each function raises
AccountingError if an argument is out of range. Proofs are in docs/theory/accounting.md.
"""

import math

from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms import reduction
from shuffledp.common.mechanisms.reduction import MatchCountReduction


def symmetric_unary(local_epsilon: float) -> MatchCountReduction:
    """
    Describe SUE, basic one-time RAPPOR: p = e^(ε/2)/(e^(ε/2)+1), q = 1-p [WBLJ17].

    U sets every bit with probability q; closed forms, since 1-p loses digits at large ε.
    """
    return _halved(local_epsilon, independent=True)


def optimized_unary(local_epsilon: float) -> MatchCountReduction:
    """Describe OUE: p = 1/2, q = 1/(e^ε+1) [WBLJ17]."""
    _checked(local_epsilon)
    return MatchCountReduction.of_support_sets(
        answers=math.exp(local_epsilon) + 1,
        local_epsilon=math.nextafter(local_epsilon, math.inf),
        blanket=(1 + math.exp(-local_epsilon)) / 2,
        signal=-math.expm1(-local_epsilon) / 2,
        independent=True,
    )


def rappor_probabilities(f: float, p: float, q: float) -> tuple[float, float]:
    """
    Return the probabilities that RAPPOR reports a set and an unset bit as 1 [EPK14].

    They are q* = f(p+q)/2 + (1-f)q and p* = f(p+q)/2 + (1-f)p. One report of basic RAPPOR is a
    unary encoding with q* and p*, which covers neither several reports of a user, nor Bloom filters
    with several hashes (see `general_blanket.py`), nor cohorts: account for each cohort separately.

    The arguments must satisfy 0 ≤ f < 1 and 0 ≤ p < q ≤ 1.
    """
    if not (0 <= f < 1 and 0 <= p < q <= 1):
        raise AccountingError(
            f"f, p, q are {f}, {p}, {q}; they must satisfy 0 <= f < 1 and 0 <= p < q <= 1"
        )
    middle = f * (p + q) / 2
    return middle + (1 - f) * q, middle + (1 - f) * p


def duchi(local_epsilon: float) -> MatchCountReduction:
    """
    Describe Duchi's one-bit randomizer of a number in -1 .. 1 [DJW18].

    At ±1, the least private inputs, it is binary randomized response.
    """
    _checked(local_epsilon)
    return MatchCountReduction.for_epsilon(answers=2, local_epsilon=local_epsilon, hashed=False)


def piecewise(local_epsilon: float) -> MatchCountReduction:
    """
    Describe the piecewise mechanism for a number in -1 .. 1 [WXY+19].

    With C = (e^(ε/2)+1)/(e^(ε/2)-1), U is uniform on [-C, C], and a report supports x if it lies in
    the interval of length C-1 that x maps to. Those of 1 and -1 are disjoint: collision 0.
    """
    return _halved(local_epsilon, independent=False)


def _halved(local_epsilon: float, *, independent: bool) -> MatchCountReduction:
    """Return the reduction with l = e^(ε/2) + 1 and γ = e^(-ε/2)."""
    half = _checked(local_epsilon) / 2
    return MatchCountReduction.of_support_sets(
        answers=math.exp(half) + 1,
        local_epsilon=math.nextafter(local_epsilon, math.inf),
        blanket=math.exp(-half),
        signal=-math.expm1(-half),
        independent=independent,
    )


def _checked(local_epsilon: float) -> float:
    """Return the local ε, or raise AccountingError if it is out of range."""
    least, most = reduction.MIN_LOCAL_EPSILON, math.log(reduction.MAX_ANSWERS - 1)
    if not least <= local_epsilon < most:
        rule = f"it must be at least {least} and below {most:.2f}"
        raise AccountingError(f"local epsilon is {local_epsilon}; {rule}")
    return local_epsilon
