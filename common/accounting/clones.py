"""
Hiding among clones: amplification by shuffling for any randomizer with a known local ε.

The adversary sees the number J of draws from Q' among m = 1 + Bin(n_h, chance) draws from Q or Q'
(docs/theory/accounting.md), the victim's with odds p : 1 or 1 : p. With s = (p-1)/(p+1) the two
worlds weight J ~ Bin(m, 1/2) by 1 ± s(1 - 2J/m), hence

    δ(ε | m) = 2s(1+e^ε)/m · E[(u - J)_+],   u = m(p - e^ε)/((p-1)(1+e^ε)),   δ = E_m[δ(ε | m)].

Every δ here is an upper bound on that expectation: δ(ε | m) falls with m (J/m is a reverse
martingale), bins of m are charged at their lower edge, and no tail is omitted. Used where no other
reduction is known; formula 1 is tighter where it applies.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from shuffledp.common.accounting.anonymity_set import AnonymitySet, Bins
from shuffledp.common.accounting.binomial import RELATIVE_ERROR, shortfall
from shuffledp.common.accounting.count_distributions import Binomial, check_between
from shuffledp.common.accounting.epsilon_search import least_epsilon
from shuffledp.common.accounting.releases import Release
from shuffledp.common.errors import AccountingError, BoundRangeError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.reduction import MatchCountReduction

_N_BINS: Final = 512
_ROUNDING: Final = 1e-15
"""Bound on the relative error of u, by which u is raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRelease(Release):
    """One round of any randomizer with a finite local ε, amplified by users but not dummies."""

    anonymity_set: AnonymitySet
    local_epsilon: float
    """Local ε of one report; finite."""
    chance: float
    """Probability that another user is a clone, 0 .. 1."""
    log_odds: float
    """ln p, the log-odds of the victim's coin; infinite if the value alone decides."""

    def __post_init__(self) -> None:
        check_between("the probability of a clone", self.chance, 0, 1)
        if not self.log_odds > 0:
            raise AccountingError(
                f"the victim's log-odds are {self.log_odds}; they must be above 0"
            )

    @classmethod
    def with_a_coin(cls, local_epsilon: float, anonymity_set: AnonymitySet) -> "CloneRelease":
        """
        Use the reduction of [FMT21] with the coin of [FMT23]; proven for every randomizer.

        Let all users' distributions be within a factor p = e^ε0 of each other, and R, R' be the
        victim's two. Then Q = (pR - R')/(p-1) and Q' = (pR' - R)/(p-1) are distributions,
        R = (pQ + Q')/(p+1), R' = (Q + pQ')/(p+1), and R + R' = Q + Q'. Any other user's
        distribution is at least (R + R')/(2p) = (Q + Q')/(2p): a clone with probability 1/p.
        Which users are clones is independent of the coin, so one channel completes both worlds.
        """
        odds = math.exp(local_epsilon)
        return cls(
            anonymity_set=anonymity_set,
            local_epsilon=local_epsilon,
            chance=1 / odds,
            log_odds=math.log(odds),
        )

    def _delta(self, epsilon: float) -> float:
        """Return the bound. Cost: about a thousand binomial evaluations for any number of users."""
        return self.curve()(epsilon)

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on ε at δ, at most the local ε. Cost: about ten values of δ."""
        return least_epsilon(self.curve(), delta=delta, local_epsilon=self.local_epsilon)

    def curve(
        self,
        epsilons: Sequence[float] = (),  # bins do not depend on them
    ) -> Callable[[float], float]:
        others = Binomial(self.anonymity_set.others, self.chance)
        bins = Bins.of(others, _N_BINS)
        masses, missed = bins.masses(others)
        return lambda epsilon: self._delta_at(epsilon, bins.edges, masses, missed)

    def _delta_at(self, epsilon: float, edges: Vector, masses: Vector, missed: float) -> float:
        """Return the average of δ(ε | m), rounded up, over bins of the number of clones."""
        if epsilon >= self.log_odds:
            return 0.0
        sizes = edges + 1
        slope = 1 + math.exp(epsilon)
        share = math.expm1(epsilon - self.log_odds) / math.expm1(-self.log_odds) / slope
        expected = shortfall(sizes, sizes * share * (1 + _ROUNDING))
        given = 2 * math.tanh(self.log_odds / 2) * slope / sizes * expected
        return min(1.0, missed + float(masses @ given) * (1 + RELATIVE_ERROR))


def finite_epsilon(reduction: MatchCountReduction) -> float:
    """Return the local ε, or raise BoundRangeError if it is infinite."""
    if math.isinf(reduction.local_epsilon):
        raise BoundRangeError("it needs a finite local ε; here reports carry no noise")
    return reduction.local_epsilon
