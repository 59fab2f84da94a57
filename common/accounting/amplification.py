"""
The one formula: what shuffling among honest users and dummies leaves for the analyzer to learn.

For a match-count mechanism with l answers, blanket probability γ = l·q and signal p - q, let M be
the number of uniform messages around the victim, itself included: M = 1 + Bin(n_h, γ) + D, with
n_h honest users besides the victim and D honest dummies. Then

    δ(ε | M) = l·(p-q)/M · E[(H_x - e^ε·H_x' - M·(e^ε - 1)·q/(p-q))_+],   δ(ε) = E_M[δ(ε | M)],

where H_x, H_x' count the uniform messages that support the victim's two candidate values: two
independent Bin(M, 1/l) if the mechanism is pairwise independent, and one histogram,
H_x | H_x' ~ Bin(M - H_x', 1/(l-1)), if not. This is the privacy blanket [BBGN19]; the
two-binomial form needs no Fourier transform.

Every figure is an upper bound, by construction:

* δ(ε | M) falls with M (H/M is a reverse martingale), so bins of M are charged at their low edge;
* the inner expectation is convex in H_x', so inside a cell of H_x' the chord lies above it, and a
  cell's exact mass and mean put it on the chord;
* no tail is cut off: what lies below the first bin of M is charged to δ in full.

Run by the analyzer and by `shuffledp account`. Replace-one neighbours.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from scipy import optimize, stats

from common.accounting.binomial import (
    at_most,
    interval_masses,
    more_than,
    stop_loss,
)
from common.accounting.crowd import Crowd
from common.accounting.tails import RELATIVE_ERROR
from common.errors import AccountingError
from common.mechanisms.mechanism import Vector
from common.mechanisms.reduction import MatchCountReduction
from common.task import MIN_DELTA

MIN_EPSILON: Final = 1e-9
MAX_EPSILON: Final = 100.0
"""Where a search for ε begins and ends; beyond it nothing is certified."""

_TAIL: Final = 1e-24
"""Probability below the first bin of M; charged to δ."""
_NODES: Final = np.concatenate(
    [np.arange(-10, -7, 0.1), np.arange(-7, 3, 0.03), np.arange(3, 6, 0.25), [7, 9, 12]]
)
"""
Cells of H_x', in standard deviations: narrow where a victim's other value is supported rarely, and
coarse where nothing is decided. Their chords are some .1 % high at worst.
"""
_MEAN_ERROR: Final = 1e-10
"""Relative error of a cell's mean: that of two tails, which agree in their own errors."""
_FIRST_BINS: Final = 48
_MAX_BINS: Final = 3072
_CLOSE_ENOUGH: Final = 1e-5
"""Relative width to which ε is searched."""


def delta_upper(reduction: MatchCountReduction, crowd: Crowd, epsilon: float) -> float:
    """
    Bound δ from above at a given central ε, against the analyzer and the crowd's colluders.

    Args:
        reduction: The mechanism.
        crowd: Honest users and dummies in the batch that was really released.
        epsilon: Central ε, at least 0.

    Returns:
        A δ in 0 .. 1 at which (ε, δ) holds, within .5 % of formula 1. 0 from the local ε on.

    Raises:
        AccountingError: epsilon is negative, not a number, or above MAX_EPSILON where that is
            below the local ε.
    """
    if not epsilon >= 0:
        raise AccountingError(f"epsilon is {epsilon}; it must be at least 0")
    if epsilon >= reduction.local_epsilon:
        return 0.0
    if epsilon > MAX_EPSILON:
        raise AccountingError(
            f"epsilon is {epsilon}; below the local epsilon it may be at most {MAX_EPSILON}"
        )
    return _formula(reduction, crowd, epsilon, tolerance=2e-3)(epsilon)


def epsilon_upper(reduction: MatchCountReduction, crowd: Crowd, delta: float) -> float:
    """
    Bound the central ε from above at a given δ, against the analyzer and the crowd's colluders.

    Returns:
        An ε at which (ε, δ) holds: at most the local ε, which is infinite if reports carry no
        noise and the crowd is too small. Within .1 % of formula 1's.

    Raises:
        AccountingError: delta is not between MIN_DELTA and 1.

    Cost: some ten evaluations of δ; tenths of a second.
    """
    if not MIN_DELTA <= delta < 1:
        raise AccountingError(f"delta is {delta}; it must be at least {MIN_DELTA} and below 1")
    top = min(reduction.local_epsilon, MAX_EPSILON) * (1 - _CLOSE_ENOUGH)
    guess = min(max(_gaussian_guess(reduction, crowd, delta), MIN_EPSILON), top)
    formula = _formula(reduction, crowd, guess, tolerance=1e-2)
    if formula(top) > delta:
        return reduction.local_epsilon

    def excess(epsilon: float) -> float:
        return math.log(max(formula(epsilon), 1e-300)) - math.log(delta)

    low = high = guess
    while excess(high) > 0:
        low, high = high, min(1.2 * high, top)
    while low == high or excess(low) <= 0:
        high = low
        if low <= MIN_EPSILON:
            return min(MIN_EPSILON, reduction.local_epsilon)
        low = max(low / 1.2, MIN_EPSILON)
    epsilon = float(optimize.brentq(excess, low, high, rtol=_CLOSE_ENOUGH, xtol=1e-300))
    while excess(epsilon) > 0:
        epsilon *= 1 + _CLOSE_ENOUGH
    return min(epsilon, reduction.local_epsilon)


def _formula(
    reduction: MatchCountReduction, crowd: Crowd, epsilon: float, tolerance: float
) -> Callable[[float], float]:
    """
    Prepare δ(ε) with bins of M so fine that, at the given ε, they cost at most `tolerance`.

    The bins are then fixed, so that the function falls with ε and can be searched.
    """
    bins = _FIRST_BINS
    while True:
        edges = _edges(reduction, crowd, bins)
        conditional = _ConditionalDelta(reduction, edges + 1 + crowd.dummies)
        masses, missed = _masses(reduction, crowd, edges)
        values = conditional(epsilon)
        upper = missed + float(masses @ values)
        lost = float(masses[:-1] @ -np.diff(values))
        if lost <= tolerance * upper or bins >= _MAX_BINS or np.all(np.diff(edges) <= 1):
            break
        bins *= 2
    return lambda at: min(1.0, missed + float(masses @ conditional(at)))


def _edges(reduction: MatchCountReduction, crowd: Crowd, bins: int) -> Vector:
    """Low edges of bins of Bin(others, γ); every whole number if there are few."""
    if crowd.others == 0:
        return np.zeros(1)
    low = max(0.0, float(stats.binom.ppf(_TAIL, crowd.others, reduction.blanket)))
    high = float(stats.binom.isf(1e-9, crowd.others, reduction.blanket))
    edges: Vector = np.unique(np.floor(np.linspace(low, max(low, high), bins + 1)))
    return edges


def _masses(reduction: MatchCountReduction, crowd: Crowd, edges: Vector) -> tuple[Vector, float]:
    """Probability of each bin (the last is open), and of everything below the first."""
    if crowd.others == 0:
        return np.ones(1), 0.0
    others, blanket = np.asarray(float(crowd.others)), reduction.blanket
    closed = interval_masses(edges, others, blanket)
    last = more_than(edges[-1:] - 1, others, blanket)
    missed = float(at_most(edges[:1] - 1, others, blanket)[0])
    return np.concatenate([closed, last]) * (1 + RELATIVE_ERROR), missed * (1 + RELATIVE_ERROR)


class _ConditionalDelta:
    """δ(ε | M) for an array of M: the law of H_x' is laid out once, each ε then costs one pass."""

    def __init__(self, reduction: MatchCountReduction, sizes: Vector) -> None:
        self._reduction = reduction
        self._sizes = sizes[:, None]
        chance = 1 / reduction.answers
        mean = self._sizes * chance
        spread = np.sqrt(mean * (1 - chance))
        nodes = np.clip(np.floor(mean + spread * _NODES), 0, self._sizes)
        self._other_matches = np.concatenate([np.zeros_like(mean), nodes], axis=1)
        self._weights = self._node_weights(chance)

    def _node_weights(self, chance: float) -> Vector:
        """
        Put each cell's mass on its two end nodes so that mass and mean are kept.

        The open last cell is charged at its low end, where the expectation is largest.
        """
        nodes, sizes = self._other_matches, self._sizes
        masses = interval_masses(nodes, sizes, chance)
        # Σ h·P(H = h) over a cell is M·chance times the mass of the cell, moved down by one,
        # under one trial less.
        moments = sizes * chance * interval_masses(nodes - 1, sizes - 1, chance)
        width = np.maximum(np.diff(nodes, axis=1), 1)
        mean = np.divide(moments, masses, out=nodes[:, :-1].copy(), where=masses > 0)
        error = _MEAN_ERROR * nodes[:, 1:]
        to_upper = masses * np.clip((mean - error - nodes[:, :-1]) / width, 0, 1)
        weights = np.zeros_like(nodes)
        weights[:, :-1] += masses - to_upper
        weights[:, 1:] += to_upper
        weights[:, -1] += more_than(nodes[:, -1] - 1, sizes[:, 0], chance)
        return weights * (1 + RELATIVE_ERROR)

    def __call__(self, epsilon: float) -> Vector:
        """Give δ(ε | M) for every M; shape as sizes."""
        law = self._reduction
        if epsilon >= law.local_epsilon:
            return np.zeros(len(self._sizes))
        growth = math.expm1(epsilon)
        threshold = self._other_matches * (1 + growth) + self._sizes * (
            growth * law.blanket / (law.answers * law.signal)
        )
        if law.pairwise_independent:
            trials, chance = np.broadcast_to(self._sizes, threshold.shape), 1 / law.answers
        else:
            trials, chance = self._sizes - self._other_matches, 1 / (law.answers - 1)
        expected = (self._weights * stop_loss(trials, chance, threshold)).sum(axis=1)
        delta: Vector = law.answers * law.signal / self._sizes[:, 0] * expected
        return delta


def _gaussian_guess(reduction: MatchCountReduction, crowd: Crowd, delta: float) -> float:
    """
    Guess ε by Gaussian differential privacy with μ² = 2(1-c)·l·(p-q)²/(nγ + D). Not a bound.

    c is 1/l where supports are independent and 0 where they exclude each other.
    """
    surroundings = 1 + crowd.others * reduction.blanket + crowd.dummies
    independence = 1 - 1 / reduction.answers if reduction.pairwise_independent else 1.0
    mu = reduction.signal * math.sqrt(2 * independence * reduction.answers / surroundings)

    def excess(epsilon: float) -> float:
        first = stats.norm.cdf(-epsilon / mu + mu / 2)
        second = math.exp(epsilon + stats.norm.logcdf(-epsilon / mu - mu / 2))
        return float(first - second) - delta

    if excess(0.0) <= 0:
        return MIN_EPSILON
    if excess(MAX_EPSILON) > 0:
        return MAX_EPSILON
    return float(optimize.brentq(excess, 0.0, MAX_EPSILON, rtol=1e-3))
