"""
Another program for the accountant's figures: formula 1, summed as it is written.

It takes all numbers of uniform messages, or, where there are many, a grid of them; slower and less
exact than the accountant. It shares with it what describes a mechanism and a crowd, which are held
to their own laws, and no step of the sum.
"""

import math
from typing import Final

import numpy as np
from scipy import stats

from common.accounting.anonymity_set import AnonymitySet
from common.mechanisms.reduction import MatchCountReduction

_GRID: Final = 41
_FEW: Final = 256
"""Numbers of messages of which each is a point: the tail of so few is not steady."""
_COARSE_GRID: Final = 7
_NARROW: Final = 0.01
"""Relative spread of the number of messages below which few points of it are enough."""
_LEAST: Final = 1e-300
"""For a logarithm of what is 0."""
_DEVIATIONS: Final = 8.0
_INNER: Final = 12.0


def formula_1(
    reduction: MatchCountReduction, crowd: AnonymitySet, epsilon: float, *, exhaustive: bool = False
) -> float:
    """
    Sum l·(p-q)/M · E[(H_x - e^ε·H_x' - M·(e^ε-1)·q/(p-q))₊] over M = 1 + Bin(n_h, γ) + D.

    M runs over every number that is likely at all. What stands in the sum falls about exponentially
    in M, so that between the points of a grid its logarithm is taken for a line; a step from point
    to point would be wrong by a multiple where δ is the far tail of a law of few messages.

    Args:
        reduction: Of the mechanism.
        crowd: Who hides one report.
        epsilon: At which δ is wanted.
        exhaustive: Leave the grid out.
    """
    mean = crowd.others * reduction.blanket
    deviation = math.sqrt(max(mean * (1 - reduction.blanket), 0.0))
    low = max(0, math.floor(mean - _DEVIATIONS * deviation))
    high = min(crowd.others, math.ceil(mean + _DEVIATIONS * deviation))
    least = 1 + crowd.dummies - crowd.known_dummies
    narrow = deviation < _NARROW * (least + mean)
    numbers = np.arange(low, high + 1)
    all_of_them = exhaustive or (len(numbers) <= _FEW and not narrow)
    grid = len(numbers) if all_of_them else _COARSE_GRID if narrow else _GRID
    points = np.unique(np.linspace(low, high, min(grid, len(numbers))).round())
    logs = [math.log(max(_LEAST, _given(reduction, int(least + at), epsilon))) for at in points]
    values = np.exp(np.interp(numbers, points, logs))
    masses = stats.binom.pmf(numbers, crowd.others, min(1.0, reduction.blanket))
    return float(masses @ values)


def _given(reduction: MatchCountReduction, size: int, epsilon: float) -> float:
    """Sum over H_x' within its reach; of H_x given it, the excess has a closed form."""
    l, growth = reduction.answers, math.exp(epsilon)  # noqa: E741  # as in the formula
    shift = size * (growth - 1) * reduction.blanket / l / reduction.signal
    reach = _INNER * math.sqrt(size / l) + _INNER
    low, high = max(0, math.floor(size / l - reach)), min(size, math.ceil(size / l + reach))
    counts = np.arange(low, high + 1)
    law = stats.binom.pmf(counts, size, 1 / l)
    trials = np.full(len(counts), size) if reduction.collision else size - counts
    chance = 1 / l if reduction.collision else 1 / (l - 1)
    limits = growth * counts + shift
    whole = np.floor(limits)
    # E[(X - t)₊] of a binomial X: the mean beyond t, less t times the chance of being beyond.
    beyond = stats.binom.sf(whole - 1, np.maximum(trials - 1, 0), chance)
    excess = trials * chance * beyond - limits * stats.binom.sf(whole, trials, chance)
    return float(l * reduction.signal / size * (law @ np.maximum(excess, 0.0)))
