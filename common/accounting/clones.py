"""
Hiding among clones: what shuffling leaves of any randomizer of which only the local ε is known.

Each other user becomes, with some chance, a *clone* of the victim: its report is drawn from one of
two laws Q and Q', a fair coin saying which, and the victim's own report is drawn from Q or Q' with
a coin that its value biases, with odds p. Everything else is handed to the adversary, who is left
with the number J of draws from Q' among m = 1 + Bin(n_h, chance). With s = (p-1)/(p+1) the two
worlds weigh J ~ Bin(m, 1/2) by 1 ± s(1 - 2J/m), hence

    δ(ε | m) = 2s(1+e^ε)/m · E[(u - J)_+],   u = m(p - e^ε)/((p-1)(1+e^ε)),   δ = E_m[δ(ε | m)].

Every δ here is an upper bound of that expectation: δ(ε | m) falls with m (J/m is a reverse
martingale), bins of m are charged at their low edge, and no tail is cut off.

For comparison, and for randomizers of which no more is known: formula 1 knows the randomizer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.binomial import RELATIVE_ERROR, at_most
from common.accounting.blanket_size import Bins
from common.accounting.count_distributions import Binomial
from common.accounting.epsilon_search import least_epsilon
from common.errors import AccountingError, BoundRangeError
from common.mechanisms.base import Vector
from common.mechanisms.reduction import MatchCountReduction

_LARGEST: Final = 700.0
"""Local ε whose exponential is a number."""
_BINS: Final = 512
_FEW: Final = 64
"""Below this u the first form of the shortfall is tried."""
_ROUNDING: Final = 1e-15
"""Relative error of u, added to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneReduction:
    """How likely another user is a clone, and how the victim's value biases its own coin."""

    chance: float
    """That another user is a clone, 0 .. 1."""
    log_odds: float
    """ln p: how the victim's value biases its coin; infinite if it decides."""

    def __post_init__(self) -> None:
        if not 0 <= self.chance <= 1:
            raise AccountingError(f"the chance of a clone is {self.chance}; it must be 0 .. 1")
        if not self.log_odds > 0:
            raise AccountingError(
                f"the victim's log-odds are {self.log_odds}; they must be above 0"
            )

    @classmethod
    def of_2021(cls, local_epsilon: float) -> "CloneReduction":
        """
        Give the reduction of [FMT21]: a clone with chance e^-ε0, and the victim's side certain.

        Proven for every ε0-LDP randomizer: all others' laws are at least e^-ε0 times the mean of
        the victim's two.
        """
        return cls(chance=math.exp(-local_epsilon), log_odds=math.inf)

    @classmethod
    def of_2021_with_a_coin(cls, odds: float, ratio: float) -> "CloneReduction":
        """
        Give the reduction of [FMT21] with the coin of [FMT23]; proven for every randomizer.

        Let the victim's two laws R, R' be within a factor `odds` = p of each other, and within
        `ratio` = q of every other law. Q = (pR - R')/(p-1) and Q' = (pR' - R)/(p-1) are laws,
        R = (pQ + Q')/(p+1), R' = (Q + pQ')/(p+1), and R + R' = Q + Q'. Every other law is at least
        (R + R')/(2q) = (Q + Q')/(2q): a clone with chance 1/q. Which of the others are clones is
        independent of the victim's coin, so one channel completes both worlds.
        """
        return cls(chance=1 / ratio, log_odds=math.log(odds))

    @classmethod
    def of_2023(cls, local_epsilon: float) -> "CloneReduction":
        """
        Give the reduction of [FMT23]: a clone with chance 2/(e^ε0 + 1), the victim's odds e^ε0.

        It says that no ε0-LDP randomizer is less private, shuffled, than binary randomized
        response, for which it is formula 1. For every randomizer it is **not** proven: the paper's
        Errata withdraw that and keep it for a restricted class of randomizers.
        """
        return cls(
            chance=2 * math.exp(-local_epsilon) / (1 + math.exp(-local_epsilon)),
            log_odds=local_epsilon,
        )

    def delta(self, crowd: AnonymitySet, epsilon: float) -> float:
        """
        Bound the reduction's δ from above.

        Args:
            crowd: Its honest users count. Its dummies do not: they can only help.
            epsilon: At least 0.

        Cost: a thousand binomial evaluations, whatever the number of users; milliseconds.
        """
        if not epsilon >= 0:
            raise AccountingError(f"epsilon is {epsilon}; it must be at least 0")
        return self.curve(crowd)(epsilon)

    def curve(self, crowd: AnonymitySet) -> Callable[[float], float]:
        """Give δ as a function of ε, an upper bound; bins are laid out once."""
        bins = _bins(crowd.others, self.chance)
        return lambda epsilon: self._delta_at(epsilon, *bins)

    def epsilon(self, crowd: AnonymitySet, delta: float, local_epsilon: float) -> float:
        """Bound the reduction's ε from above, up to the local ε; cost: some ten δ."""
        return least_epsilon(self.curve(crowd), delta=delta, local_epsilon=local_epsilon)

    def _delta_at(self, epsilon: float, edges: Vector, masses: Vector, missed: float) -> float:
        if epsilon >= self.log_odds:
            return 0.0
        sizes = edges + 1
        slope = 1 + math.exp(epsilon)
        share = math.expm1(epsilon - self.log_odds) / math.expm1(-self.log_odds) / slope
        expected = shortfall(sizes, sizes * share * (1 + _ROUNDING))
        given = 2 * math.tanh(self.log_odds / 2) * slope / sizes * expected
        return min(1.0, missed + float(masses @ given) * (1 + RELATIVE_ERROR))


def clones_2021(reduction: MatchCountReduction, crowd: AnonymitySet, delta: float) -> float:
    """
    Give the central ε of [FMT21], numeric form: any ε0-LDP randomizer, dummies not counted.

    Raises:
        AccountingError: delta is out of range.
        BoundRangeError: The local ε is infinite.
    """
    local_epsilon = _finite(reduction, "clones (2021)")
    return CloneReduction.of_2021(local_epsilon).epsilon(crowd, delta, local_epsilon)


def clones_2023(reduction: MatchCountReduction, crowd: AnonymitySet, delta: float) -> float:
    """
    Give the central ε of [FMT23], numeric form, dummies not counted. Not proven: see of_2023.

    Raises:
        AccountingError: delta is out of range.
        BoundRangeError: The local ε is infinite.
    """
    local_epsilon = _finite(reduction, "clones (2023)")
    return CloneReduction.of_2023(local_epsilon).epsilon(crowd, delta, local_epsilon)


def clones_with_a_coin(reduction: MatchCountReduction, crowd: AnonymitySet, delta: float) -> float:
    """
    Give the central ε of [FMT21] with the coin of [FMT23], proven here; dummies not counted.

    Raises:
        AccountingError: delta is out of range.
        BoundRangeError: The local ε is infinite, or too large for its exponential.
    """
    local_epsilon = _finite(reduction, "clones with a coin")
    if local_epsilon > _LARGEST:
        raise BoundRangeError(
            f"clones with a coin are computed up to a local ε of {_LARGEST:g}; "
            f"here it is {local_epsilon:.6g}"
        )
    odds = math.exp(local_epsilon)
    coin = CloneReduction.of_2021_with_a_coin(odds, odds)
    return coin.epsilon(crowd, delta, local_epsilon)


def shortfall(trials: Vector, threshold: Vector) -> Vector:
    """
    Bound E[(u - J)_+] from above for J ~ Binomial(trials, 1/2), elementwise; 0 where u is.

    With k = ⌊u⌋ it equals u·P(J ≤ k) - trials/2·P(J' ≤ k-1), J' with one trial less, and
    (u - trials/2)·P(J ≤ k) + (k+1)/2·P(J = k+1). The first loses its digits where u is large, the
    second where it is far below 1: each is rounded up, and the smaller one taken.

    Args:
        trials: At least 1, whole numbers.
        threshold: u, at most trials.
    """
    threshold = np.maximum(threshold, 0)
    whole = np.floor(threshold)
    tail = at_most(whole, trials, 0.5)
    distance = (threshold - trials / 2) * tail
    rest = (whole + 1) / 2 * scipy.stats.binom.pmf(whole + 1, trials, 0.5)
    centred = np.maximum(distance + rest, 0) + RELATIVE_ERROR * (np.abs(distance) + rest)
    few = threshold < _FEW
    gain = threshold[few] * tail[few]
    loss = trials[few] / 2 * at_most(whole[few] - 1, trials[few] - 1, 0.5)
    direct = np.maximum(gain - loss, 0) + RELATIVE_ERROR * (gain + loss)
    least: Vector = centred
    least[few] = np.minimum(direct, centred[few])
    return least


def _finite(reduction: MatchCountReduction, rule: str) -> float:
    if math.isinf(reduction.local_epsilon):
        raise BoundRangeError(f"{rule} needs a finite local ε; here reports carry no noise")
    return reduction.local_epsilon


def _bins(others: int, chance: float) -> tuple[Vector, Vector, float]:
    """Give low edges of bins of Bin(others, chance), their masses, and what lies below them."""
    law = Binomial(others, chance)
    bins = Bins.of(law, _BINS)
    masses, missed = bins.masses(law)
    return bins.edges, masses, missed
