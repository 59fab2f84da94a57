"""
Lower bounds by attacks: a δ, and so an ε, below which no valid accountant can go.

The first attack, in docs/theory/accounting.md, knows that all other users hold one third value z,
and drops the messages that support z. It proves most if a message that supports two of x, x' and z
supports all three. Two more help where it is weak. If z is independent of x and x' instead, the
others' messages support these like uniform ones, so none needs to be dropped; this is stronger with
many dummies or a single user. If values exclude each other and all others hold x', only blanket
reports support x, and one count suffices; this is the attack for two values.

Every figure is a lower bound on the true δ: formula 1's δ falls with M, so bins of N count at their
upper edge; cells of H_x' count at their mean, by Jensen; tails are omitted.

Run by `shuffledp account --compare` and by auditors. Replace-one neighbours.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import scipy
from scipy import fft

from shuffledp.common.accounting import count_distributions
from shuffledp.common.accounting.amplification import epsilon_upper
from shuffledp.common.accounting.anonymity_set import AnonymitySet, Bins
from shuffledp.common.accounting.conditional import COARSE_GRID, ConditionalDelta, grid_for
from shuffledp.common.accounting.count_distributions import Binomial, CountDistribution
from shuffledp.common.accounting.epsilon_search import MAX_EPSILON, MIN_EPSILON, check_delta
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.reduction import MatchCountReduction

Attack = Callable[[float], float]
"""The δ that an attack proves at an ε."""

_WINDOW_TAIL: Final = 1e-15
_MAX_WIDTH: Final = 2 * 10**6
_MIN_PRESENCE: Final = 1e-12
_MAX_TABULATED_TRIALS: Final = 1000
"""Trials up to which a binomial distribution is tabulated in full."""
_MAX_DIRECT_PRODUCTS: Final = 10**7
"""Products up to which two distributions are convolved directly, without a Fourier transform."""
_TRANSFORM_RESOLUTION: Final = 1e-8
"""A Fourier transform resolves terms above this share of the largest one."""
_ROUND_DOWN: Final = 1 - 1e-6
"""Factor that covers the floating-point error of a distribution's terms."""
_FIRST_BINS: Final = 32
_ROUNDS: Final = 2
_TOLERANCE: Final = 1e-2
_EPSILON_PRECISION: Final = 1e-4


def epsilon_lower(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet, delta: float
) -> float:
    """
    Return an ε that attacks prove: (ε', δ) holds for no smaller ε'. 0 if no attack succeeds.

    Attacks with a third value need to know how its support depends on that of x and x': see
    `MatchCountReduction.third_value`. Raises AccountingError if delta is out of range. Cost: about
    ten times that of `epsilon_upper`; more if the number of dummies varies widely.
    """
    check_delta(delta)
    top = min(epsilon_upper(reduction, anonymity_set, delta), MAX_EPSILON)
    return max(_last_above(attack, delta, top) for attack in _attacks(reduction, anonymity_set))


def _last_above(attack: Attack, delta: float, top: float) -> float:
    """Return almost the largest ε, up to `top`, at which an attack proves more than delta; or 0."""

    def excess(epsilon: float) -> float:
        return math.log(max(attack(epsilon), 1e-300)) - math.log(delta)

    if excess(top) > 0:
        return top
    low, high = top, top
    while excess(low) <= 0:
        low, high = low / 1.3, low
        if low < MIN_EPSILON:
            return 0.0
    epsilon = float(scipy.optimize.brentq(excess, low, high, rtol=_EPSILON_PRECISION, xtol=1e-300))
    while excess(epsilon) <= 0:
        epsilon *= 1 - _EPSILON_PRECISION
    return epsilon


def _attacks(reduction: MatchCountReduction, anonymity_set: AnonymitySet) -> list[Attack]:
    """
    Return the attacks on a mechanism in an anonymity set, among them one that never succeeds.

    Conditioning on an event of probability at least 1 - τ changes each probability by at most τ, so
    a δ proven without it falls by at most (e^ε + 1)·τ.
    """
    attacks: list[Attack] = [lambda _: 0.0]
    if reduction.collision > 1 / reduction.answers:
        return attacks
    dummies, missing = anonymity_set.random_dummies, 0.0
    if isinstance(dummies, count_distributions.Conditioned):
        missing = dummies.missing
        anonymity_set = dataclasses.replace(anonymity_set, random_dummies=dummies.distribution)
    if reduction.third_value == "independent":
        # More collisions are more private, and independent support is much faster to sum.
        reduction = dataclasses.replace(reduction, collision=1 / reduction.answers)
    if reduction.has_third:
        attacks.extend(_drop_a_third_value(reduction, anonymity_set))
        if reduction.pairwise_independent:
            attacks.extend(_count_everything(reduction, anonymity_set))
    if reduction.collision == 0:
        attacks.extend(_count_one_value(reduction, anonymity_set))

    def conditioned(attack: Attack, epsilon: float) -> float:
        return max(0.0, attack(epsilon) - (math.exp(epsilon) + 1) * missing)

    return [partial(conditioned, attack) for attack in attacks]


def _drop_a_third_value(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet
) -> Iterator[Attack]:
    """
    Attack if all others hold z: drop messages for z. Yield nothing if N cannot be tabulated.

    With collision c, a message for x supports z too with probability c. Unless z is independent of
    x and x', it then supports all three: of the messages left, none supports both x and x'.
    """
    undropped = 1 - 1 / reduction.answers
    others = _table(_blanket_distributions(reduction, anonymity_set, undropped))
    if others is None:
        return
    if reduction.third_value == "independent":
        remaining, p_present = reduction, undropped
    else:
        distinct = 1 - reduction.collision
        p_present = reduction.blanket * undropped + reduction.signal * distinct
        remaining = dataclasses.replace(
            reduction,
            answers=(reduction.answers - 1) / distinct,
            blanket=reduction.blanket * undropped / p_present,
            signal=reduction.signal * distinct / p_present,
            collision=0.0,
            third_value="none",
        )
    plus_one, plus_none = others.shifted()
    with_victim, without = plus_one * p_present, plus_none * (1 - p_present)
    total = with_victim + without
    presence = np.divide(with_victim, total, out=np.zeros_like(total), where=total > 0)
    yield _MessagesAttack(remaining, _Table(others.first, total), presence)


def _count_everything(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet
) -> Iterator[Attack]:
    """Attack by counting all messages. Yield nothing if the dummies cannot be tabulated."""
    least = 1 + anonymity_set.others + max(0, anonymity_set.dummies - anonymity_set.known_dummies)
    distributions = [] if anonymity_set.random_dummies is None else [anonymity_set.random_dummies]
    extra = _table(distributions)
    if extra is None:
        return
    # At most all random dummies are known.
    lost = max(0, anonymity_set.known_dummies - anonymity_set.dummies)
    counts = np.maximum(extra.first + np.arange(len(extra.probabilities)) - lost, 0)
    pmf: Vector = np.bincount(counts - counts[0], weights=extra.probabilities).astype(float)
    yield _MessagesAttack(reduction, _Table(least + int(counts[0]), pmf), np.ones(len(pmf)))


def _count_one_value(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet
) -> Iterator[Attack]:
    """Attack if all others hold x': count x. Yield nothing if the count cannot be tabulated."""
    others = _table(_blanket_distributions(reduction, anonymity_set, 1 / reduction.answers))
    if others is None:
        return
    q = reduction.blanket / reduction.answers
    p = q + reduction.signal
    not_p = reduction.blanket * (1 - 1 / reduction.answers)
    plus_one, plus_none = others.shifted()
    holds_x = p * plus_one + not_p * plus_none
    holds_other = q * plus_one + (1 - q) * plus_none

    def attack(epsilon: float) -> float:
        growth = math.exp(epsilon)
        return _ROUND_DOWN * max(
            float(np.maximum(holds_x * _ROUND_DOWN - growth * holds_other, 0).sum()),
            float(np.maximum(holds_other * _ROUND_DOWN - growth * holds_x, 0).sum()),
        )

    yield attack


def _blanket_distributions(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet, share: float
) -> list[CountDistribution | None]:
    """Return distributions of a share of the others' blanket reports, and of unknown dummies."""
    certain = anonymity_set.dummies - anonymity_set.known_dummies
    distributions: list[CountDistribution | None] = [
        Binomial(anonymity_set.others, reduction.blanket * share)
    ]
    if certain > 0:
        distributions.append(Binomial(certain, share))
    if anonymity_set.random_dummies is not None:
        # Dummies known among the random ones would only help the attack.
        distributions.append(anonymity_set.random_dummies.thinned(share))
    return distributions


@dataclass(frozen=True, slots=True)
class _Table:
    """Probabilities of the counts from `first` on."""

    first: int
    probabilities: Vector
    complete: bool = True
    """True if no other count is possible; otherwise some mass is missing."""

    def shifted(self) -> tuple[Vector, Vector]:
        """
        Return the distributions of the count plus 1 and of the count, both from `first` on.

        Outcomes missing from one are removed from both; otherwise they would count as proof.
        """
        plus_one = np.concatenate([[0.0], self.probabilities])
        same = np.concatenate([self.probabilities, [0.0]])
        if self.complete:
            return plus_one, same
        known = (plus_one > 0) & (same > 0)
        known[0] |= self.first == 0  # no count is below 0
        return np.where(known, plus_one, 0.0), np.where(known, same, 0.0)


def _table(distributions: Sequence[CountDistribution | None]) -> _Table | None:
    """Tabulate a sum of independent counts; None if one is unknown or the table is too wide."""
    total = _Table(0, np.ones(1))
    for distribution in distributions:
        if distribution is None:
            return None
        if isinstance(distribution, Binomial) and distribution.trials <= _MAX_TABULATED_TRIALS:
            low, high, complete = 0.0, float(distribution.trials), True
        else:
            low, complete = count_distributions.quantile(distribution, _WINDOW_TAIL), False
            high = count_distributions.upper_quantile(distribution, _WINDOW_TAIL)
        if high - low > _MAX_WIDTH:
            return None
        terms = distribution.probabilities(np.arange(low, high + 1))
        total = _sum(total, _Table(int(low), terms, complete=complete))
    return total


def _sum(left: _Table, right: _Table) -> _Table:
    """Convolve two tables; after a Fourier transform only terms that it resolves are kept."""
    first = left.first + right.first
    if len(left.probabilities) * len(right.probabilities) <= _MAX_DIRECT_PRODUCTS:
        terms = np.convolve(left.probabilities, right.probabilities)
        return _Table(first, terms, complete=left.complete and right.complete)
    terms = scipy.signal.fftconvolve(left.probabilities, right.probabilities)
    trusted = np.where(terms > _TRANSFORM_RESOLUTION * terms.max(), terms, 0.0)
    return _Table(first, trusted, complete=False)


class _MessagesAttack:
    """Distinguish two values by their counts among N messages, given N."""

    def __init__(self, reduction: MatchCountReduction, sizes: _Table, presence: Vector) -> None:
        """
        Prepare for a reduction of a report that is among the N, and the distribution of N.

        `presence` is the probability, for each N, that the victim's report is among the N.
        """
        reachable = (sizes.probabilities > 0) & (presence > 0)
        start = max(int(np.argmax(reachable)), 1 - sizes.first)
        self._reduction = reduction
        self._first = sizes.first + start
        self._cumulative = np.cumsum(np.concatenate([[0.0], sizes.probabilities[start:]]))
        self._presence = presence[start:]
        stop = len(self._presence) - int(np.argmax(reachable[::-1]))
        self._bins = Bins.between(0.0, float(max(stop, 1)), _FIRST_BINS)

    def __call__(self, epsilon: float) -> float:
        """Return a δ that the attack proves at ε; keep the refined bins for the next ε."""
        if epsilon >= self._reduction.local_epsilon:
            return 0.0
        bins = self._bins
        for _ in range(_ROUNDS):
            masses, sizes, presence = self._charged_high(bins)
            values = ConditionalDelta(self._reduction, sizes, COARSE_GRID, presence).lower(epsilon)
            gained = masses * values
            # They fall with N, or rise with the presence.
            steps = np.abs(np.diff(values, prepend=values[:1], append=values[-1:]))
            losses = masses * np.maximum(steps[:-1], steps[1:])
            if losses.sum() <= _TOLERANCE * gained.sum() or gained.sum() == 0:
                break
            bins = bins.refined(losses, _TOLERANCE * float(gained.sum()) / 2)
        # Start from these bins at the next ε.
        self._bins = bins
        masses, sizes, presence = self._charged_high(bins)
        best = min(int(np.argmax(gained)), len(sizes) - 1)
        grid = grid_for(self._reduction, float(sizes[best]), epsilon, _TOLERANCE)
        values = ConditionalDelta(self._reduction, sizes, grid, presence).lower(epsilon)
        return _ROUND_DOWN * float((masses * values).sum())

    def _charged_high(self, bins: Bins) -> tuple[Vector, Vector, Vector]:
        """Return each bin's mass (0 if it proves nothing), largest N, and least presence."""
        edges = bins.edges.astype(int)
        masses = np.diff(self._cumulative[np.minimum(edges, len(self._presence))])
        sizes = self._first + edges[1:] - 1.0
        presence = np.minimum.reduceat(self._presence, edges[:-1])
        # A bin proves nothing if the victim's report is certainly absent.
        proving = presence >= _MIN_PRESENCE
        return np.where(proving, masses, 0.0), sizes, np.where(proving, presence, 1.0)


_DEVIATIONS: Final = 40.0
_MIN_RESOLVED: Final = 1e-13
"""Smallest probability that a Fourier transform resolves."""
_ROUNDS_PRECISION: Final = 1e-3


def epsilon_of_rounds(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet, rounds: int, delta: float
) -> float:
    """
    Return an ε that one statistic of several rounds proves: (ε', δ) holds for no smaller ε'.

    All others hold a third value, and messages that support it are dropped. Over all rounds the
    analyzer counts the messages that support x minus those that support x'. A blanket report of the
    others supports x alone or x' alone with equal probability, and so does a fixed dummy (others
    are ignored); the victim's report favours one. The statistic is a sum of independent numbers in
    {-1, 0, 1}; one Fourier transform gives the distribution. The result is 0 if nothing is proven.

    Raises ValueError if the mechanism has no third value.
    """
    if not reduction.has_third:
        raise ValueError("the others must hold a third value; this mechanism has none")
    # A message for x supports x' too with the collision probability. A third value that is not
    # independent is then supported as well, so no message for x or x' alone is dropped.
    independent = reduction.third_value == "independent"
    distinct = (1 - 1 / reduction.answers) ** 2 if independent else 1 - reduction.collision
    # A uniform message is kept and supports x alone, or x' alone, each with this probability.
    alone = distinct / reduction.answers
    # The report of the victim, who holds x, supports x alone (plus) or x' alone (minus).
    minus = reduction.blanket * alone
    plus = minus + reduction.signal * distinct
    n_uniform = anonymity_set.others * reduction.blanket + anonymity_set.dummies
    variance = 2 * rounds * n_uniform * alone
    reach = int(_DEVIATIONS * math.sqrt(variance) + 2 * rounds + _DEVIATIONS)
    size = fft.next_fast_len(2 * reach + 1)
    angle = 2 * np.pi * np.arange(size) / size
    # The characteristic function of a uniform message's part is 1 - 2·alone·(1 - cos).
    turn = 1 - np.cos(angle)
    reports, dummies = rounds * anonymity_set.others, rounds * anonymity_set.dummies
    noise = _power_of_complement(2 * reduction.blanket * alone * turn, reports)
    noise *= _power_of_complement(2 * alone * turn, dummies)
    own = 1 - plus - minus + plus * np.exp(-1j * angle) + minus * np.exp(1j * angle)
    holds_x: Vector = np.maximum(np.fft.ifft(noise * own**rounds).real, 0.0)
    holds_other = np.roll(holds_x[::-1], 1)  # the statistic has the other sign
    trusted = (holds_x > _MIN_RESOLVED) & (holds_other > _MIN_RESOLVED)

    def proven(epsilon: float) -> float:
        return float(np.maximum(holds_x - math.exp(epsilon) * holds_other, 0.0)[trusted].sum())

    low, high = 0.0, min(rounds * reduction.local_epsilon, -math.log(_MIN_RESOLVED))
    if proven(low) <= delta:
        return 0.0
    while high - low > _ROUNDS_PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if proven(middle) > delta else (low, middle)
    return low


def _power_of_complement(base: Vector, exponent: int) -> Vector:
    """Return (1 - base)^exponent, elementwise; by its logarithm where that keeps digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        small = np.exp(exponent * np.log1p(-np.minimum(base, 0.5)))
    powers: Vector = np.where(base < 0.5, small, (1 - base) ** exponent)  # noqa: PLR2004  # both forms are exact there
    return powers
