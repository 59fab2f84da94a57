"""
What an attack proves: a δ, and so an ε, below which no accountant can come.

The analyzer knows that all other users hold one third value z, and drops what supports it. What
is left is uniform, but for the victim's report if that is among it: N messages in all, a number
that it sees. By the counts H_x, H_x' among them it tells the victim's two values apart. Where
the victim's report is among the N for certain, its δ is formula 1's for a mechanism with as many
answers as are left; where it is only with a chance, for one with less signal [BBGN19]. Under
hashing z is a value whose support is independent of the two: one not on the line through them.

Two more attacks help where that one is weak. Under hashing all n + D messages support x and x'
independently, whatever anybody holds, so nothing needs to be dropped: better where most reports
are uniform anyhow. Where values exclude each other and all others hold x', only blanket reports
support x: one count, for two-valued domains.

Every figure is a lower bound on the true δ, by construction: formula 1's δ falls with M, so bins
of N are taken at their high edge; cells of H_x' at their mean, by Jensen; tails are left out.

Run by `shuffledp account --compare` and by auditors. Replace-one neighbours.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from common.accounting.amplification import epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.blanket_size import Bins
from common.accounting.conditional import COARSE_GRID, ConditionalDelta, grid_for
from common.accounting.count_distributions import (
    Binomial,
    Conditioned,
    CountDistribution,
    quantile,
    upper_quantile,
)
from common.accounting.epsilon_search import LEAST_EPSILON, MOST_EPSILON, check_delta
from common.errors import AccountingError
from common.mechanisms.base import Vector
from common.mechanisms.reduction import MatchCountReduction

Attack = Callable[[float], float]
"""What δ an attack proves at an ε."""

_WINDOW_TAIL: Final = 1e-15
_WIDEST: Final = 2 * 10**6
_LEAST_PRESENCE: Final = 1e-12
_FEW: Final = 1000
"""Trials up to which a binomial law is tabulated whole."""
_DIRECT: Final = 10**7
"""Products up to which two laws are convolved term by term, without a Fourier transform."""
_TRUSTED: Final = 1e-8
"""What a Fourier transform leaves of a law: nothing below this share of its largest term."""
_EXACT_TO: Final = 1 - 1e-6
"""Factor for the floating-point error of a law's terms."""
_FIRST_BINS: Final = 32
_ROUNDS: Final = 2
_TOLERANCE: Final = 1e-2
_CLOSE_ENOUGH: Final = 1e-4


def delta_lower(reduction: MatchCountReduction, crowd: AnonymitySet, epsilon: float) -> float:
    """
    Give a δ that attacks on the mechanism prove: no (ε, δ') holds with a lesser δ'.

    Args:
        reduction: The mechanism. Where its values have a third, the attack needs it independent
            of (hashing) or exclusive with (one histogram) the two.
        crowd: Honest users and dummies in the batch.
        epsilon: Central ε, at least 0.

    Returns:
        A δ in 0 .. 1; 0 where no attack succeeds.

    Raises:
        AccountingError: epsilon is negative or not a number.
    """
    if not epsilon >= 0:
        raise AccountingError(f"epsilon is {epsilon}; it must be at least 0")
    return max(attack(epsilon) for attack in _attacks(reduction, crowd))


def epsilon_lower(reduction: MatchCountReduction, crowd: AnonymitySet, delta: float) -> float:
    """
    Give an ε that attacks prove: no (ε', δ) holds with a lesser ε'. 0 where none succeeds.

    Raises:
        AccountingError: delta is not between MIN_DELTA and 1.

    Cost: some ten times that of `epsilon_upper`; more where the number of dummies varies widely.
    """
    check_delta(delta)
    top = min(epsilon_upper(reduction, crowd, delta), MOST_EPSILON)
    return max(_last_above(attack, delta, top) for attack in _attacks(reduction, crowd))


def _last_above(attack: Attack, delta: float, top: float) -> float:
    """Find nearly the largest ε, up to `top`, at which an attack still proves more than delta."""

    def excess(epsilon: float) -> float:
        return math.log(max(attack(epsilon), 1e-300)) - math.log(delta)

    if excess(top) > 0:
        return top
    low, high = top, top
    while excess(low) <= 0:
        low, high = low / 1.3, low
        if low < LEAST_EPSILON:
            return 0.0
    found = float(scipy.optimize.brentq(excess, low, high, rtol=_CLOSE_ENOUGH, xtol=1e-300))
    while excess(found) <= 0:
        found *= 1 - _CLOSE_ENOUGH
    return found


def _attacks(reduction: MatchCountReduction, crowd: AnonymitySet) -> list[Attack]:
    """
    List what can be tried on a mechanism in a crowd; at least one that never succeeds.

    Given an event of probability 1 - τ or more, whatever is seen has chances within τ of those
    without it: of what is proven without it, (e^ε + 1)·τ is not.
    """
    law = crowd.random_dummies
    if not isinstance(law, Conditioned):
        return _attacks_on(reduction, crowd)
    plain = dataclasses.replace(crowd, random_dummies=law.law)
    return [_less(attack, law.missing) for attack in _attacks_on(reduction, plain)]


def _less(attack: Attack, missing: float) -> Attack:
    return lambda epsilon: max(0.0, attack(epsilon) - (math.exp(epsilon) + 1) * missing)


def _attacks_on(reduction: MatchCountReduction, crowd: AnonymitySet) -> list[Attack]:
    attacks: list[Attack] = [lambda _: 0.0]
    if reduction.collision > 1 / reduction.answers:
        return attacks
    if 0 < reduction.collision < 1 / reduction.answers:
        # More collisions are more private, and independent supports much faster to sum.
        reduction = dataclasses.replace(reduction, collision=1 / reduction.answers)
    if reduction.third_value != "none":
        attacks.extend(_drop_a_third_value(reduction, crowd))
    if reduction.third_value == "independent":
        attacks.extend(_count_everything(reduction, crowd))
    if reduction.collision == 0 and reduction.third_value != "independent":
        attacks.extend(_count_one_value(reduction, crowd))
    return attacks


def _drop_a_third_value(reduction: MatchCountReduction, crowd: AnonymitySet) -> Iterator[Attack]:
    """All others hold z; what supports z is dropped."""
    kept = 1 - 1 / reduction.answers
    others = _table(_blanket_laws(reduction, crowd, kept))
    if others is None:
        return
    if reduction.third_value == "independent":
        rest, inside = reduction, kept
    else:
        inside = reduction.blanket * kept + reduction.signal
        rest = dataclasses.replace(
            reduction,
            answers=reduction.answers - 1,
            blanket=reduction.blanket * kept / inside,
            signal=reduction.signal / inside,
            third_value="none",
        )
    with_one, with_none = others.shifted()
    with_victim, without = with_one * inside, with_none * (1 - inside)
    total = with_victim + without
    presence = np.divide(with_victim, total, out=np.zeros_like(total), where=total > 0)
    yield _MessagesAttack(rest, _Table(others.first, total), presence)


def _count_everything(reduction: MatchCountReduction, crowd: AnonymitySet) -> Iterator[Attack]:
    """Every report supports x and x' independently, whatever its sender holds."""
    least = 1 + crowd.others + max(0, crowd.dummies - crowd.known_dummies)
    laws = [] if crowd.random_dummies is None else [crowd.random_dummies]
    extra = _table(laws)
    if extra is None:
        return
    # Of random dummies no more are known than there are.
    lost = max(0, crowd.known_dummies - crowd.dummies)
    counts = np.maximum(extra.first + np.arange(len(extra.probabilities)) - lost, 0)
    chances: Vector = np.bincount(counts - counts[0], weights=extra.probabilities).astype(float)
    yield _MessagesAttack(reduction, _Table(least + int(counts[0]), chances), np.ones(len(chances)))


def _count_one_value(reduction: MatchCountReduction, crowd: AnonymitySet) -> Iterator[Attack]:
    """All others hold x': of them only blanket reports support x."""
    others = _table(_blanket_laws(reduction, crowd, 1 / reduction.answers))
    if others is None:
        return
    q = reduction.blanket / reduction.answers
    p = q + reduction.signal
    not_p = reduction.blanket * (1 - 1 / reduction.answers)
    with_one, with_none = others.shifted()
    holds = p * with_one + not_p * with_none
    holds_not = q * with_one + (1 - q) * with_none

    def attack(epsilon: float) -> float:
        growth = math.exp(epsilon)
        return _EXACT_TO * max(
            float(np.maximum(holds * _EXACT_TO - growth * holds_not, 0).sum()),
            float(np.maximum(holds_not * _EXACT_TO - growth * holds, 0).sum()),
        )

    yield attack


def _blanket_laws(
    reduction: MatchCountReduction, crowd: AnonymitySet, share: float
) -> list[CountDistribution | None]:
    """Of the others' blanket reports and the unknown dummies, those that a share describes."""
    certain = crowd.dummies - crowd.known_dummies
    laws: list[CountDistribution | None] = [Binomial(crowd.others, reduction.blanket * share)]
    if certain > 0:
        laws.append(Binomial(certain, share))
    if crowd.random_dummies is not None:
        # Known dummies among the random ones: an attack that knows them could only do better.
        laws.append(crowd.random_dummies.thinned(share))
    return laws


@dataclass(frozen=True, slots=True)
class _Table:
    """Probabilities of the whole numbers from `first` on."""

    first: int
    probabilities: Vector
    complete: bool = True
    """Whether all others are impossible; if not, a little mass is missing, at the ends too."""

    def shifted(self) -> tuple[Vector, Vector]:
        """
        Give the laws with and without one more, on the same numbers from `first` on.

        What was cut off is cut off both: where one is missing, the other would be taken for proof.
        """
        more = np.concatenate([[0.0], self.probabilities])
        same = np.concatenate([self.probabilities, [0.0]])
        known = (more > 0) & (same > 0) if not self.complete else np.ones(len(more), dtype=bool)
        return np.where(known, more, 0.0), np.where(known, same, 0.0)


def _table(laws: Sequence[CountDistribution | None]) -> _Table | None:
    """Tabulate a sum of independent counts; None if a law is missing or too wide for memory."""
    total = _Table(0, np.ones(1))
    for law in laws:
        if law is None:
            return None
        if isinstance(law, Binomial) and law.trials <= _FEW:
            low, high, complete = 0.0, float(law.trials), True
        else:
            low, high = quantile(law, _WINDOW_TAIL), upper_quantile(law, _WINDOW_TAIL)
            complete = False
        if high - low > _WIDEST:
            return None
        terms = law.probabilities(np.arange(low, high + 1))
        total = _sum(total, _Table(int(low), terms, complete=complete))
    return total


def _sum(one: _Table, other: _Table) -> _Table:
    """Convolve; a Fourier transform leaves of the sum what is large enough for its rounding."""
    first = one.first + other.first
    if len(one.probabilities) * len(other.probabilities) <= _DIRECT:
        product = np.convolve(one.probabilities, other.probabilities)
        return _Table(first, product, complete=one.complete and other.complete)
    product = scipy.signal.fftconvolve(one.probabilities, other.probabilities)
    trusted = np.where(product > _TRUSTED * product.max(), product, 0.0)
    return _Table(first, trusted, complete=False)


class _MessagesAttack:
    """Tell two values apart by their counts among N messages; the analyzer sees N."""

    def __init__(self, reduction: MatchCountReduction, sizes: _Table, presence: Vector) -> None:
        """
        Prepare the attack.

        Args:
            reduction: Of a report that is among the N.
            sizes: The law of N.
            presence: For each N, the probability that the victim's report is among them.
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
        """Give a δ that the attack proves at an ε."""
        if epsilon >= self._reduction.local_epsilon:
            return 0.0
        bins = self._bins
        for _ in range(_ROUNDS):
            masses, sizes, presence = self._charged_high(bins)
            values = ConditionalDelta(self._reduction, sizes, COARSE_GRID, presence).lower(epsilon)
            gained = masses * values
            losses = masses * np.maximum(np.concatenate([values[:1], values[:-1]]) - values, 0)
            if losses.sum() <= _TOLERANCE * gained.sum() or gained.sum() == 0:
                break
            bins = bins.refined(losses, _TOLERANCE * float(gained.sum()) / 2)
        # Bins that were good for one ε are where the next one starts.
        self._bins = bins
        masses, sizes, presence = self._charged_high(bins)
        best = min(int(np.argmax(gained)), len(sizes) - 1)
        grid = grid_for(self._reduction, float(sizes[best]), epsilon, _TOLERANCE)
        values = ConditionalDelta(self._reduction, sizes, grid, presence).lower(epsilon)
        return _EXACT_TO * float((masses * values).sum())

    def _charged_high(self, bins: Bins) -> tuple[Vector, Vector, Vector]:
        """Give each bin's mass, its largest N, and its least presence of the victim."""
        edges = bins.edges.astype(int)
        masses = np.diff(self._cumulative[np.minimum(edges, len(self._presence))])
        sizes = self._first + edges[1:] - 1.0
        presence = np.minimum.reduceat(self._presence, edges[:-1])
        # Where the victim's report may be missing for certain, nothing is proven.
        proving = presence >= _LEAST_PRESENCE
        return np.where(proving, masses, 0.0), sizes, np.where(proving, presence, 1.0)
