"""Reference bounds for tests: the δ of attacks, and match counts as blanket pairs."""

import math

import numpy as np

from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.lab.bounds.attack import _attacks
from shuffledp.lab.bounds.general_blanket import BlanketPair


def delta_lower(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet, epsilon: float
) -> float:
    """Return a lower bound on δ at an ε, by attacks."""
    return max(attack(epsilon) for attack in _attacks(reduction, anonymity_set))


def match_count_pair(reduction: MatchCountReduction) -> BlanketPair:
    """Describe a match-count mechanism by the values that a blanket report supports."""
    one, both = 1 / reduction.answers, reduction.collision / reduction.answers
    base, lift = reduction.blanket, reduction.answers * reduction.signal
    return BlanketPair(
        blanket=reduction.blanket,
        local_epsilon=reduction.local_epsilon,
        chances=np.array([max(0.0, 1 - 2 * one + both), one - both, one - both, both]),
        first=base + lift * np.array([0.0, 1.0, 0.0, 1.0]),
        second=base + lift * np.array([0.0, 0.0, 1.0, 1.0]),
    )


def unary(p: float, q: float) -> MatchCountReduction:
    """Describe a unary encoding that sets the value's bit with probability p, any other with q."""
    ratio = math.log1p((p - q) / (q * (1 - p))) if p < 1 else math.inf
    return MatchCountReduction.of_support_sets(
        answers=1 / q,
        local_epsilon=math.nextafter(ratio, math.inf),
        blanket=(1 - p) / (1 - q),
        signal=(p - q) / (1 - q),
        independent=True,
    )
