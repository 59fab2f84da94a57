"""
Formula 1: amplification by shuffling among honest users and dummies, against the analyzer.

    δ(ε | M) = l·(p-q)/M · E[(H_x - e^ε·H_x' - M·(e^ε - 1)·q/(p-q))_+],   δ(ε) = E_M[δ(ε | M)]

This is the privacy blanket bound [BBGN19] in binomial form, for the blanket size
M = 1 + Bin(n_h, γ) + D. docs/theory/accounting.md defines its terms, and shows why no figure here
is too low. Run by the analyzer, the user agent and the planner. Replace-one neighbours.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final

import numpy as np

from shuffledp.common.accounting import conditional, epsilon_search
from shuffledp.common.accounting.anonymity_set import AnonymitySet, BlanketSize
from shuffledp.common.accounting.count_distributions import MAX_COUNT, Binomial
from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.reduction import MatchCountReduction

_FIRST_BINS: Final = 24
_ROUNDS: Final = 4
_FINER: Final = 1.1
"""Growth of the number of bins in a pass below which the next one would gain little."""
_MAX_RANDOM_BINS: Final = 256
_ROUGH_TOLERANCE: Final = 0.1
"""Relative error of δ in the first search for ε."""
_COLLISION_FACTOR: Final = 4.0
"""Factor on the tolerance if the number of messages that support both values is binned too."""
_TOLERANCE_PER_LOG_DELTA: Final = 6e-4
"""Relative error of δ in the final search, divided by ln(1/δ): in relative terms, δ changes about
2·ln(1/δ) times as fast as ε."""
_CACHE_SIZE: Final = 1024


def delta_upper(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet, epsilon: float
) -> float:
    """
    Return an upper bound on δ at a central ε, against the analyzer and colluding users.

    Returns a δ in 0 .. 1 at which (ε, δ) holds; 0 from the local ε on. It is within .2 % of formula
    1 if the collision probability is 0 or 1/l and M is either at least a few hundred times l or
    small enough to be summed in full; otherwise within 1 %. Raises AccountingError if epsilon is
    below 0, not a number, or above MAX_EPSILON and below the local ε. Cost: about a tenth of a
    second; seconds for collision probabilities other than 0 and 1/l.
    """
    if not epsilon >= 0:
        raise AccountingError(f"epsilon is {epsilon}; it must be at least 0")
    if epsilon >= reduction.local_epsilon:
        return 0.0
    epsilon_search.check_tried(epsilon)
    return DeltaCurve(reduction, anonymity_set, (epsilon,), tolerance=1e-3)(epsilon)


@lru_cache(maxsize=_CACHE_SIZE)
def epsilon_upper(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet, delta: float
) -> float:
    """
    Return an upper bound on the central ε at δ, against the analyzer and colluding users.

    Returns an ε at which (ε, δ) holds, within .1 % of formula 1's ε and at most the local ε.
    Infinite if reports carry no noise and the anonymity set is too small. Raises AccountingError if
    delta is below MIN_DELTA, or not below 1. Cost: about ten evaluations of δ on one layout of
    bins, tenths of a second; seconds for collision probabilities other than 0 and 1/l. Results are
    cached.
    """
    epsilon_search.check_delta(delta)
    epsilon = gaussian_guess(reduction, anonymity_set, delta)
    local = reduction.local_epsilon
    for tolerance in (_ROUGH_TOLERANCE, _TOLERANCE_PER_LOG_DELTA * -math.log(delta)):
        at = min(epsilon, local, epsilon_search.MAX_EPSILON)
        curve = DeltaCurve(reduction, anonymity_set, (at,), tolerance)
        found = epsilon_search.least_epsilon(curve, delta=delta, local_epsilon=local, guess=epsilon)
        # A rough curve may level off above δ even if a fine one does not.
        epsilon = found if found < local else epsilon
    return found


class DeltaCurve:
    """
    δ(ε) as a function, with bins of M and cells of H_x' laid out once for a few ε.

    At those ε the layout raises δ by at most about a relative `tolerance`. The curve falls with ε,
    is convex in e^ε and lies above the true curve everywhere: it belongs to a pair of distributions
    that dominates the shuffled batch [ZDW22].
    """

    def __init__(
        self,
        reduction: MatchCountReduction,
        anonymity_set: AnonymitySet,
        epsilons: Sequence[float],
        tolerance: float,
    ) -> None:
        """Lay out bins and cells that cost a relative `tolerance` of δ at the given ε."""
        self.reduction = reduction
        reduction, anonymity_set, share = _on_two_items(reduction, anonymity_set)
        if not (reduction.collision == 0 or reduction.pairwise_independent):
            tolerance *= _COLLISION_FACTOR
        self._blanket_size = BlanketSize(anonymity_set, share)
        self._bins, self._random = self._blanket_size.first_bins(_FIRST_BINS)
        two_answers = reduction.answers == 2 and reduction.collision == 0  # noqa: PLR2004
        grid: Vector = conditional.COARSE_GRID

        def delta_given(sizes: Vector) -> Callable[[float], Vector]:
            if two_answers:
                return partial(conditional.two_answers_delta, reduction, sizes)
            return conditional.ConditionalDelta(reduction, sizes, grid)

        wider = [(epsilon, self._refine(delta_given, epsilon, tolerance)) for epsilon in epsilons]
        if not two_answers:
            for epsilon, decisive in wider:
                finer = conditional.grid_for(reduction, decisive, epsilon, tolerance)
                grid = np.union1d(grid, finer)
        masses, weights, self._missed = self._blanket_size.masses(self._bins, self._random)
        self._masses: Vector = weights @ masses
        self._conditional = delta_given(self._bins.edges)

    def _refine(
        self,
        delta_given: Callable[[Vector], Callable[[float], Vector]],
        epsilon: float,
        tolerance: float,
    ) -> float:
        """Split bins, in a few passes, to cost little at ε; return the M that adds most to δ."""
        known = dict[float, float]()
        for _ in range(_ROUNDS):
            before = len(self._bins.edges), len(self._random.edges)
            masses, weights, missed = self._blanket_size.masses(self._bins, self._random)
            new = np.array([edge for edge in self._bins.edges.tolist() if edge not in known])
            if len(new):
                known.update(zip(new.tolist(), delta_given(new)(epsilon).tolist(), strict=True))
            values = np.array([known[edge] for edge in self._bins.edges.tolist()])
            contributions = (weights @ masses) * values
            decisive = float(self._bins.edges[np.argmax(contributions)])
            allowed = tolerance / 2 * (missed + float(contributions.sum()))
            losses = (weights @ masses)[:-1] * -np.diff(values)
            random_losses = weights[:-1] * -np.diff(masses @ values)
            if losses.sum() <= allowed and random_losses.sum() <= allowed:
                break
            self._bins = self._bins.refined(losses, allowed / 2)
            self._random = self._random.refined(random_losses, allowed / 2, _MAX_RANDOM_BINS)
            if len(self._bins.edges) + len(self._random.edges) < _FINER * sum(before):
                break
        return decisive

    def __call__(self, epsilon: float) -> float:
        """Return an upper bound on δ at ε."""
        if epsilon >= self.reduction.local_epsilon:
            return self._missed
        return min(1.0, self._missed + float(self._masses @ self._conditional(epsilon)))


def _on_two_items(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet
) -> tuple[MatchCountReduction, AnonymitySet, float]:
    """
    Return an equal reduction, an anonymity set, and the share of its users in the blanket.

    Reports that name an item, without noise, matter only if they name x or x': each dummy does
    with probability 2/l, and others' reports never do. So T = H_x + H_x' - 1 is the thinned number
    of dummies, and formula 1 at l and M is formula 1 at l = 2 and 1 + T; the proof is in
    docs/theory/accounting.md.
    """
    random = anonymity_set.random_dummies or Binomial(0, 0.0)
    share = min(1.0, 2 / reduction.answers)
    thinned = random.thinned(share)
    if reduction.collision or reduction.blanket or thinned is None:
        return reduction, anonymity_set, reduction.blanket
    known = max(0, anonymity_set.known_dummies - anonymity_set.dummies)
    certain = max(0, anonymity_set.dummies - anonymity_set.known_dummies)
    on_two = AnonymitySet(
        users=1 + min(certain, MAX_COUNT - 1), random_dummies=thinned, known_dummies=known
    )
    return dataclasses.replace(reduction, answers=2), on_two, share


def gaussian_guess(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet, delta: float
) -> float:
    """
    Estimate ε at δ, by Gaussian privacy with μ² = 2(1-c)·l·(p-q)²/M at a typical M; not a bound.

    Near 0 the privacy loss is about l(p-q)/M·(H_x - H_x'), and Var(H_x - H_x') = 2M(1-c)/l.
    """
    others = anonymity_set.others * reduction.blanket
    blanket_size = 1 + others + anonymity_set.typical_dummies
    distinct = max(1 - reduction.collision, 1e-9)
    mu = reduction.signal * math.sqrt(2 * distinct * reduction.answers / blanket_size)
    return epsilon_search.gaussian_epsilon(mu, delta)
