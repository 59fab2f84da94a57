"""
Another program for the accountant's figures: formula 1, summed as it is written.

It takes a grid of the number of uniform messages, or all of them; slower and less exact than the
accountant. It shares with it what describes a mechanism and a crowd, which are held to their own
laws, and no step of the sum.
"""

import math
from typing import Final

import numpy as np
from scipy import stats

from common.accounting.crowd import Crowd
from common.mechanisms.reduction import MatchCountReduction

_GRID: Final = 41
_COARSE_GRID: Final = 7
_NARROW: Final = 0.01
"""Relative spread of the number of messages below which few points of it are enough."""
_DEVIATIONS: Final = 8.0
_INNER: Final = 12.0


def formula_1(
    reduction: MatchCountReduction, crowd: Crowd, epsilon: float, *, exhaustive: bool = False
) -> float:
    """
    Sum l·(p-q)/M · E[(H_x - e^ε·H_x' - M·(e^ε-1)·q/(p-q))₊] over M = 1 + Bin(n_h, γ) + D.

    M runs over a grid that covers its law, each point with the probability of what is nearest; or
    over every number that is likely at all.
    """
    mean = crowd.others * reduction.blanket
    deviation = math.sqrt(max(mean * (1 - reduction.blanket), 0.0))
    low = max(0, math.floor(mean - _DEVIATIONS * deviation))
    high = min(crowd.others, math.ceil(mean + _DEVIATIONS * deviation))
    least = 1 + crowd.dummies - crowd.known_dummies
    narrow = deviation < _NARROW * (least + mean)
    grid = crowd.others + 1 if exhaustive else _COARSE_GRID if narrow else _GRID
    points = np.unique(np.linspace(low, high, min(grid, high - low + 1)).round())
    edges = np.concatenate([[-0.5], (points[1:] + points[:-1]) / 2, [crowd.others + 0.5]])
    masses = np.diff(stats.binom.cdf(np.floor(edges), crowd.others, min(1.0, reduction.blanket)))
    sizes = least + points
    values = [_given(reduction, int(size), epsilon) for size in sizes]
    return float(masses @ np.array(values))


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
