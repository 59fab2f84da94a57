"""
Other bounds on ε for a mechanism, anonymity set and δ, for `account --compare`.

The variation-ratio reduction describes a randomizer by three numbers [WPL+23]. For the victim's two
distributions R, R' let β be their total variation, p the largest ratio of one to the other, and q
the largest ratio of either to any other user's distribution. Here p = q = e^ε0. With a = β/(p-1)
and r = ap/q = a,

    R = ap·Q + a·Q' + (1-a-ap)·Q*,   R' = a·Q + ap·Q' + (1-a-ap)·Q*,   others ≥ r·Q + r·Q',

where Q, Q' are the normalized positive and negative part of R - R'. This decomposition is correct.

**As published** the victim's two worlds are then the numbers of draws from Q and from Q' alone.
That is not an upper bound: a channel that completes both worlds must know whether the victim's
report was the draw from Q*, and given these numbers that is not equally likely in the two worlds:
docs/theory/accounting.md has an example.

**Certified** is the smaller of two proven bounds:

* *revealed*: reveal whether the victim's report is a draw from Q*. If so (probability 1-w,
  w = a + ap), the worlds are equal; if not, a common channel derives both from the numbers. The
  hockey-stick divergence of a mixture with public components is the mixture of the divergences, so
  δ(ε) ≤ w·δ'(ε), where δ' is that of clones with probability 2r and odds p;
* *with a coin*: clones with probability 1/q and odds p, see `CloneRelease.with_a_coin`;
  never above [FMT21].
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import scipy

from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.binomial import shortfall
from shuffledp.common.accounting.clones import CloneRelease, finite_epsilon
from shuffledp.common.accounting.epsilon_search import least_epsilon
from shuffledp.common.accounting.published import PUBLISHED, Bound, BoundSetting
from shuffledp.common.errors import AccountingError, BoundRangeError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.reduction import MatchCountReduction

_MAX_EXPONENT: Final = 700.0
"""Largest ε whose exponential is computed; e^710 overflows."""
_MAX_SUMMED_OUTCOMES: Final = 4096
"""Outcomes of the number of clones up to which all are summed."""
_NODES: Final = 1024
"""Number of outcomes summed if there are more."""
_WINDOW: Final = 12.0
"""Half the range of the number of clones that is summed, in standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariationRatio:
    """
    The variation-ratio parameters p = q and β of one pair of the victim's distributions.

    For a randomizer take the worst pair, which need not have the largest β: smaller differences
    also mean fewer clones.
    """

    odds: float
    """p = q: the largest ratio of two distributions, the victim's or another user's, above 1."""
    variation: float
    """β: their exact total variation, not a bound; at most (p-1)/(p+1)."""

    def __post_init__(self) -> None:
        if not 1 < self.odds < math.inf:
            raise AccountingError(f"the odds p are {self.odds}; they must be above 1 and finite")
        most = _most_variation(self.odds)
        if not 0 < self.variation <= most * (1 + 1e-12):
            raise AccountingError(
                f"the total variation is {self.variation}; with odds p = {self.odds} it must be "
                f"above 0 and at most {most}"
            )

    @classmethod
    def of(cls, reduction: MatchCountReduction) -> "VariationRatio":
        """
        Describe a match-count mechanism: β = signal·(1-collision).

        Raises BoundRangeError if the local ε is infinite or above _MAX_EXPONENT, or β is 0.
        """
        odds = _odds(finite_epsilon(reduction))
        variation = reduction.signal * (1 - reduction.collision)
        if variation == 0:
            raise BoundRangeError("it needs values with different reports; these always collide")
        return cls(odds=odds, variation=min(variation, _most_variation(odds)))

    @property
    def side(self) -> float:
        """
        Probability a = β/(p-1) that the victim's report is from the less likely of Q and Q'.

        Another user's report is from Q with probability r = a, and likewise from Q'.
        """
        return self.variation / (self.odds - 1)

    @property
    def decided(self) -> float:
        """Probability w = a + ap that the victim's report is a draw from Q or Q'."""
        return min(1.0, self.side * (1 + self.odds))

    def certified_delta(self, anonymity_set: AnonymitySet, epsilon: float) -> float:
        """
        Return an upper bound on the pair's δ; dummies, which only reduce δ, are not counted.

        Cost: two evaluations of `CloneRelease.delta`, milliseconds.
        """
        log_odds = math.log(self.odds)
        coin = CloneRelease(
            anonymity_set=anonymity_set,
            local_epsilon=log_odds,
            chance=1 / self.odds,
            log_odds=log_odds,
        )
        revealed = replace(coin, chance=min(1.0, 2 * self.side))
        return min(self.decided * revealed.delta(epsilon), coin.delta(epsilon))

    def reduction_delta(self, anonymity_set: AnonymitySet, epsilon: float) -> float:
        """
        Return δ of the published reduction, for comparison: **not** an upper bound.

        With m of the n reports draws from Q or Q' and J ~ Bin(m, 1/2), the two worlds give

            δ = Σ_m P(C = m-1)·2β(1+e^ε)/m·E[(u_m - J)_+],
            u_m = (a(p - e^ε)·m - (e^ε - 1)(1-w)(n-m)·r/(1-2r)) / (β(1+e^ε)),  C ~ Bin(n-1, 2r).

        Cost: up to 4096 binomial evaluations; more values of C are summed at 1024 nodes, to about
        1e-4 of δ.
        """
        others, chance = anonymity_set.others, min(1.0, 2 * self.side)
        clones, weights = _nodes(others, chance)
        sizes = clones + 1
        growth = math.expm1(epsilon)
        scale = self.variation * (2 + growth)
        lost = 1 - self.decided
        fog = growth * lost * self.side / (1 - chance) if lost > 0 and chance < 1 else 0.0
        sure = self.side * -math.expm1(epsilon - math.log(self.odds)) * self.odds
        threshold = (sure * sizes - fog * (others + 1 - sizes)) / scale
        given = 2 * scale / sizes * shortfall(sizes, threshold)
        return float(weights @ given)


def _pair_epsilon(
    delta_of: Callable[[VariationRatio, AnonymitySet, float], float], setting: BoundSetting
) -> float:
    """Return the least ε at which a pair's δ is at most delta; at most ln p."""
    pair = VariationRatio.of(setting.reduction)
    curve = partial(delta_of, pair, setting.anonymity_set)
    return least_epsilon(curve, delta=setting.delta, local_epsilon=math.log(pair.odds))


def clones_epsilon(
    release_of: Callable[[float, AnonymitySet], CloneRelease], setting: BoundSetting
) -> float:
    """
    Return the central ε of any ε0-LDP randomizer by clones, numeric; dummies are not counted.

    `release_of` is one of the reductions below. Raises AccountingError if delta is below
    MIN_DELTA, or not below 1; BoundRangeError if the local ε is infinite.
    """
    local_epsilon = finite_epsilon(setting.reduction)
    return release_of(local_epsilon, setting.anonymity_set).epsilon(setting.delta)


def _odds(local_epsilon: float) -> float:
    """Return e^ε0, or raise BoundRangeError if it is too large."""
    if local_epsilon > _MAX_EXPONENT:
        raise BoundRangeError(
            f"it is computed up to a local ε of {_MAX_EXPONENT:g}; here it is {local_epsilon:.6g}"
        )
    return math.exp(local_epsilon)


def clones_of_2021(local_epsilon: float, anonymity_set: AnonymitySet) -> CloneRelease:
    """
    Use the reduction of [FMT21]: a clone with probability e^-ε0, and infinite odds.

    Proven for every ε0-LDP randomizer: any other user's distribution is at least e^-ε0 times
    the mean of the victim's two.
    """
    return CloneRelease(
        anonymity_set=anonymity_set,
        local_epsilon=local_epsilon,
        chance=math.exp(-local_epsilon),
        log_odds=math.inf,
    )


def clones_of_2023(local_epsilon: float, anonymity_set: AnonymitySet) -> CloneRelease:
    """
    Use the reduction of [FMT23]: a clone with probability 2/(e^ε0 + 1), and odds e^ε0.

    The paper claims that no shuffled ε0-LDP randomizer is less private than binary randomized
    response, for which this equals formula 1. That is **not** proven for every randomizer: the
    paper's Errata restrict the claim to a smaller class.
    """
    return CloneRelease(
        anonymity_set=anonymity_set,
        local_epsilon=local_epsilon,
        chance=2 * math.exp(-local_epsilon) / (1 + math.exp(-local_epsilon)),
        log_odds=local_epsilon,
    )


def _with_a_coin(local_epsilon: float, anonymity_set: AnonymitySet) -> CloneRelease:
    _odds(local_epsilon)
    return CloneRelease.with_a_coin(local_epsilon, anonymity_set)


def _most_variation(odds: float) -> float:
    """Return (p-1)/(p+1), the largest total variation of two distributions within a factor p."""
    return (odds - 1) / (odds + 1)


def _nodes(others: int, chance: float) -> tuple[Vector, Vector]:
    """Return numbers of clones and their weights, by the trapezoidal rule if there are many."""
    mean, spread = others * chance, math.sqrt(others * chance * (1 - chance))
    low = max(0.0, math.floor(mean - _WINDOW * spread - _WINDOW))
    high = min(float(others), math.ceil(mean + _WINDOW * spread + _WINDOW))
    few = high - low < _MAX_SUMMED_OUTCOMES
    clones = (
        np.arange(low, high + 1) if few else np.unique(np.floor(np.linspace(low, high, _NODES)))
    )
    density = np.asarray(scipy.stats.binom.pmf(clones, others, chance), dtype=np.float64)
    return clones, density if few else density * np.gradient(clones)


COMPARED: Final[tuple[tuple[str, Bound], ...]] = (
    # Bounds for dummies of each item are not compared here.
    *(named for key, named in PUBLISHED.items() if key not in {"aue", "sbin", "sageo"}),
    (
        "clones [FMT21], numeric, any randomizer, without dummies",
        partial(clones_epsilon, clones_of_2021),
    ),
    (
        "clones [FMT23], numeric, without dummies; not proven for every randomizer",
        partial(clones_epsilon, clones_of_2023),
    ),
    (
        "clones [FMT21] with [FMT23]'s coin, without dummies; proven for all",
        partial(clones_epsilon, _with_a_coin),
    ),
    (
        "variation ratio [WPL+23], numeric, without dummies; not proven",
        partial(_pair_epsilon, VariationRatio.reduction_delta),
    ),
    (
        "variation ratio, the part that is proven, without dummies",
        partial(_pair_epsilon, VariationRatio.certified_delta),
    ),
)
"""Every bound shown beside the tight one, with its full name."""


def compare(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet, delta: float
) -> list[tuple[str, float | str]]:
    """
    Evaluate every bound in COMPARED. Run by `shuffledp account`.

    Returns each bound's name with its central ε or, outside the range of its theorem, the reason;
    in the order of COMPARED. Raises AccountingError if delta is out of range. Cost: five numeric
    searches, together below a second at 10^9 users.
    """
    setting = BoundSetting(reduction=reduction, anonymity_set=anonymity_set, delta=delta)
    rows: list[tuple[str, float | str]] = []
    for name, bound in COMPARED:
        try:
            rows.append((name, bound(setting)))
        except BoundRangeError as error:
            rows.append((name, str(error)))
    return rows
