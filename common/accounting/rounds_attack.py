"""A lower bound on composed claims, proven by one statistic of several rounds; for audits."""

import math
from typing import Final

import numpy as np
from scipy import fft

from common.accounting.anonymity_set import AnonymitySet
from common.mechanisms.base import Vector
from common.mechanisms.reduction import MatchCountReduction

_DEVIATIONS: Final = 40.0
_ROUNDING: Final = 1e-13
"""Smallest probability that a Fourier transform resolves."""
_CLOSE: Final = 1e-3


def epsilon_of_rounds(
    reduction: MatchCountReduction, crowd: AnonymitySet, rounds: int, delta: float
) -> float:
    """
    Return an ε that one statistic of several rounds proves: no (ε', δ) holds with a smaller ε'.

    All others hold a third value, and messages that support it are dropped. Over all rounds the
    analyzer counts the messages that support x minus those that support x'. Each blanket report of
    the others, and each dummy, supports x alone or x' alone equally likely; the victim's report
    does so in each round with its own probabilities. The statistic is a sum of independent numbers
    in -1, 0, 1, and one Fourier transform gives its distribution.

    Raises:
        ValueError: The mechanism has no third value.
    """
    if reduction.third_value == "none":
        raise ValueError("the others hold a third value, of which this mechanism has none")
    l, collision = reduction.answers, reduction.collision  # noqa: E741  # as in the formula
    apart = (1 - collision) / l
    independent = reduction.third_value == "independent"
    kept = 1 - 1 / l if independent else 1.0
    p, q = reduction.blanket / l + reduction.signal, reduction.blanket / l
    plus = kept * p * (1 - collision) if independent else p
    minus = kept * (1 - p) / l if independent else q
    variance = 2 * rounds * (crowd.others * reduction.blanket + crowd.dummies) * kept * apart
    reach = int(_DEVIATIONS * math.sqrt(variance) + 2 * rounds + _DEVIATIONS)
    size = fft.next_fast_len(2 * reach + 1)
    angle = 2 * np.pi * np.arange(size) / size
    turn = 1 - np.cos(angle)
    noise = _less_to_the(2 * reduction.blanket * kept * apart * turn, rounds * crowd.others)
    noise *= _less_to_the(2 * kept * apart * turn, rounds * crowd.dummies)
    own = 1 - plus - minus + plus * np.exp(-1j * angle) + minus * np.exp(1j * angle)
    one: Vector = np.maximum(np.fft.ifft(noise * own**rounds).real, 0.0)
    other = np.roll(one[::-1], 1)  # x' for x: the difference has the other sign
    trusted = (one > _ROUNDING) & (other > _ROUNDING)

    def proven(epsilon: float) -> float:
        return float(np.maximum(one - math.exp(epsilon) * other, 0.0)[trusted].sum())

    low, high = 0.0, min(rounds * reduction.local_epsilon, -math.log(_ROUNDING))
    if proven(low) <= delta:
        return 0.0
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if proven(middle) > delta else (low, middle)
    return low


def _less_to_the(less: Vector, number: int) -> Vector:
    """Return (1 - less)^number of each; from its logarithm where that keeps digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        small = np.exp(number * np.log1p(-np.minimum(less, 0.5)))
    powers: Vector = np.where(less < 0.5, small, (1 - less) ** number)  # noqa: PLR2004  # either is exact there
    return powers
