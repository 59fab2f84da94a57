"""
Randomized response over two items: δ of one count, at the worst values of all others.

If j of the N other users hold x, u is the distribution of the number of reports of theirs and of D
uniform dummies that name x: Bin(j, p) + Bin(N-j, q) + Bin(D, 1/2), with q = 1 - p. Then

    δ(ε | j) = Σ_k (a·u(k-1) - b·u(k))_+,   a = p - e^ε·q,  b = e^ε·p - q,   δ(ε) = max_j δ(ε | j).

An upper bound, since intervals of j are bounded and all errors added (docs/theory/accounting.md).
Run by the analyzer, the user agent and the planner. Replace-one neighbours.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from shuffledp.common.accounting import epsilon_search
from shuffledp.common.accounting.amplification import gaussian_guess
from shuffledp.common.accounting.anonymity_set import AnonymitySet, Bins
from shuffledp.common.accounting.binomial import RELATIVE_ERROR
from shuffledp.common.accounting.count_distributions import MAX_COUNT, ROUNDING, Binomial
from shuffledp.common.accounting.releases import AmplifiedRelease
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.reduction import MatchCountReduction

_TOLERANCE: Final = 4e-3
"""Relative excess of δ that intervals of j may cause, a quarter of which bins of D may add."""
_LEAST_TOLERANCE: Final = 1e-4
_NEGLIGIBLE: Final = 1e-18
"""Bounds on δ below which intervals are not halved."""
_MAX_INTERVALS: Final = 4096
_MAX_BINNED_INTERVALS: Final = 512
"""Most intervals if the number of dummies is random."""
_FIRST_BINS: Final = 24
_MAX_BINS: Final = 256
_ROUNDS: Final = 4
_FAR: Final = 0.01
"""Relative distance of an ε from that of a layout beyond which it gets a layout of its own."""
_BLOCK: Final = 2**12
"""Pairs of an interval and a number of dummies that are evaluated at a time."""
_LOG_TAIL: Final = 40.0
"""A sum over a contour may miss three times e^-40, relative to its terms' largest possible sum."""
_LOST: Final = 1e-15
"""Bound on that, and on the absolute error of terms near 0."""
_CACHE_SIZE: Final = 1024


def amplified(reduction: MatchCountReduction, anonymity_set: AnonymitySet) -> AmplifiedRelease:
    """Return one round of a match-count mechanism, with the tightest bound for its reduction."""
    form = TwoItemRelease if reduction.two_items else AmplifiedRelease
    return form(reduction=reduction, anonymity_set=anonymity_set)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoItemRelease(AmplifiedRelease):
    """One round of randomized response over two items, or of numbers rounded to two at random."""

    def _delta(self, epsilon: float) -> float:
        """
        Return the bound, at most .4 %, or by about e^ε·10⁻¹⁵, too large.

        It is 2 % too large if the number of dummies is random, or for above 10^8 users. Raises
        AccountingError if epsilon is above MAX_EPSILON. Cost: hundredths of a second; tenths for a
        random number of dummies.
        """
        epsilon_search.check_tried(epsilon)
        return self.curve((epsilon,))(epsilon)

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on ε at δ; cached. Cost: a tenth of a second to one second."""
        epsilon_search.check_delta(delta)
        return _epsilon(self, delta)

    def curve(self, epsilons: Sequence[float]) -> "TwoItemCurve":
        return TwoItemCurve(self.reduction, self.anonymity_set, epsilons)


@lru_cache(maxsize=_CACHE_SIZE)
def _epsilon(release: TwoItemRelease, delta: float) -> float:
    reduction, anonymity_set, local = (
        release.reduction, release.anonymity_set, release.local_epsilon
    )  # fmt: skip
    dummies = min(int(anonymity_set.typical_dummies), MAX_COUNT)
    typical = dataclasses.replace(
        anonymity_set, dummies=dummies, random_dummies=None, known_dummies=0
    )
    found = gaussian_guess(reduction, anonymity_set, delta)
    for among in (typical, anonymity_set, anonymity_set):  # later layouts are for the ε found
        laid = min(found, local, epsilon_search.MAX_EPSILON)
        curve = TwoItemCurve(reduction, among, (laid,))
        found = epsilon_search.least_epsilon(curve, delta=delta, local_epsilon=local, guess=found)
        if among is anonymity_set and abs(found - laid) <= _FAR * laid:
            break
    return found


class TwoItemCurve:
    """
    δ(ε) as a function, on intervals of j and bins of D laid out once for a few ε.

    For low ≤ j ≤ high, δ(ε | j) is at most the δ among `low` others with x and N - high with x':
    the adversary can add the reports of the rest itself. At the given ε the largest of these bounds
    is within _TOLERANCE of the largest δ(ε | j) found. If D is random, each bound is an average
    over bins, each at its lower edge. Everywhere the curve is the largest of several that each
    belong to a pair of distributions, and so belongs to one as well [ZDW22].
    """

    def __init__(
        self, reduction: MatchCountReduction, anonymity_set: AnonymitySet, epsilons: Sequence[float]
    ) -> None:
        """Lay out the intervals and bins for the given ε."""
        self._reduction, self._set = reduction, anonymity_set
        self._random = anonymity_set.random_dummies or Binomial(0, 0.0)
        self._low, self._high = np.zeros(1), np.full(1, float(anonymity_set.others))
        self._use(Bins.of(self._random, _FIRST_BINS))
        for epsilon in epsilons:
            self._refine(epsilon, self._halve(epsilon))

    def _use(self, bins: Bins) -> None:
        self._bins, (self._masses, self._missed) = bins, bins.masses(self._random)
        self._dummies = self._set.hiding_dummies(bins.edges)[:, np.newaxis]

    def _halve(self, epsilon: float) -> int:
        """
        Halve the intervals with the largest bounds; return the number of the largest one.

        Stops if no bound exceeds the largest δ found by more than _TOLERANCE, or where δ is flat by
        more than .1 % of ε would change it.
        """
        most = _MAX_INTERVALS if len(self._masses) == 1 else _MAX_BINNED_INTERVALS
        low, high = self._low, self._high
        at = np.floor(self._set.others * np.array([0.0, 0.5, 1.0]))
        found, further = (float(self._bounds(at, at, x).max()) for x in (epsilon, 1.001 * epsilon))
        fall = 1 - further / found if found > further else 1.0
        tolerance = min(_TOLERANCE, max(fall, _LEAST_TOLERANCE))
        bounds = self._bounds(low, high, epsilon)
        while True:
            largest = np.argsort(-bounds)[: most - len(low)]
            above = bounds[largest] > max((1 + tolerance) * found, _NEGLIGIBLE)
            wide = largest[above & (low[largest] < high[largest])]
            if not len(wide):
                break
            middle = np.floor((low[wide] + high[wide]) / 2)
            found = max(found, float(self._bounds(middle, middle, epsilon).max()))
            starts = np.concatenate([low[wide], middle + 1])
            ends = np.concatenate([middle, high[wide]])
            halves = (starts, ends, self._bounds(starts, ends, epsilon))
            low, high, bounds = (
                np.concatenate([np.delete(whole, wide), half])
                for whole, half in zip((low, high, bounds), halves, strict=True)
            )
        self._low, self._high = low, high
        return int(np.argmax(bounds))

    def _refine(self, epsilon: float, worst: int) -> None:
        """Split bins of D, in a few passes, so that they cost little in the worst interval."""
        others_with = self._low[worst], self._set.others - self._high[worst]
        for _ in range(_ROUNDS):
            dummies = self._dummies[:, 0]
            values = exact_delta(self._reduction, *others_with, dummies, epsilon)
            losses = self._masses[:-1] * -np.diff(values)
            allowed = _TOLERANCE / 4 * (self._missed + float(self._masses @ values))
            if losses.sum() <= allowed:
                break
            self._use(self._bins.refined(losses, allowed / 2, _MAX_BINS))

    def _bounds(self, low: Vector, high: Vector, epsilon: float) -> Vector:
        """Return the bound on δ for each interval, averaged over the bins of D."""
        found, rows = np.full(len(low), self._missed), max(1, _BLOCK // len(low))
        for start in range(0, len(self._masses), rows):
            part = slice(start, start + rows)
            found += self._masses[part] @ exact_delta(
                self._reduction, low, self._set.others - high, self._dummies[part], epsilon
            )
        return found

    def __call__(self, epsilon: float) -> float:
        """Return an upper bound on δ at ε. Cost: microseconds for each interval and bin."""
        if epsilon >= self._reduction.local_epsilon:
            return self._missed
        return min(1.0, float(self._bounds(self._low, self._high, epsilon).max()))


def exact_delta(
    reduction: MatchCountReduction,
    held: Vector,
    other: Vector,
    dummies: Vector | float,
    epsilon: float,
) -> Vector:
    """
    Return δ at ε, elementwise, if `held` others hold x and `other` others x'; rounded up.

    Tilt u by r = b/a: u(k) = G·r^-k·v(k), where G is the mean of r^W, and v the distribution of as
    many independent bits W', with tilted probabilities r·c / (1 - c + r·c) for c. As a·u(k-1) -
    b·u(k) = a·G·r^(1-k)·(v(k-1) - v(k)), the sign changes at the mode m of v, which is within 1 of
    its mean [Dar64]. Hence δ = a·G·r^-m·h with

        h = v(m) - (r-1)·Σ_{l>0} r^-l·v(m+l),

    and no other m gives more. If φ(t) = E[e^(itW')] and t = 2πs/M, the sum over s has the values of
    h at all m + M·l, l whole, and so

        h ≤ (1/M)·Σ_{0<s<M} Re[φ(t)·e^(-itm)·r(e^it-1) / (r·e^it-1)] + (r-1)·r^m / (G·(r^M-1))

    plus P(W' ≥ m+M). Bernstein's inequality [BLM13] makes that less than e^-40, and terms with
    |φ(t)| ≤ exp(-2·Var(W')·sin²(t/2)) < e^-40 are left out.

    Cost: at most 28 terms for each element, for any counts; microseconds.
    """
    counts = np.stack(np.broadcast_arrays(held, other, dummies), axis=-1).astype(np.float64)
    a, tilt = _tilt(reduction, epsilon)
    if a <= 0:
        return np.zeros(counts.shape[:-1])
    chances = np.array([reduction.signal + reduction.blanket / 2, reduction.blanket / 2, 1 / 2])
    rise, total = math.expm1(tilt), counts.sum(axis=-1)  # r - 1, N + D
    log_moment = counts @ np.log1p(chances * rise)  # ln G
    chances = chances * (1 + rise) / (1 + chances * rise)
    mean, variance = counts @ chances, counts @ (chances * (1 - chances))
    third = _LOG_TAIL / 3
    points = np.ceil(1.5 + third + np.sqrt(third**2 + 2 * _LOG_TAIL * variance))
    points = np.minimum(points, total + 2)  # M; nothing lies beyond all bits
    with np.errstate(over="ignore"):  # r^M may be infinite
        wrapped = a * (rise / np.expm1(points * tilt) if tilt > 0 else 1 / points)
    needed = np.arcsin(np.sqrt(_LOG_TAIL / np.maximum(2 * variance, _LOG_TAIL))) / np.pi * points
    step = np.arange(1.0, 1 + np.max(np.minimum(points // 2, np.ceil(needed))))
    points = points[..., np.newaxis]
    angles = 2 * np.pi * step / points
    # Terms for s and M - s are conjugates.
    weights = ((2 * step <= points).astype(float) + (2 * step < points)) / points
    logs, phases = _characteristic(counts, chances, angles / 2)
    sizes = weights * (1 + rise) * np.exp(logs)
    # (e^it - 1) / (r·e^it - 1) is the first times the conjugate of the second, over its square.
    square = rise**2 + 4 * (1 + rise) * np.sin(angles / 2) ** 2
    real = sizes * (2 + rise) * 2 * np.sin(angles / 2) ** 2 / square
    imaginary = sizes * rise * np.sin(angles) / square
    # A phase errs by some roundings of the phases that it sums up.
    errors = (real + np.abs(imaginary)) * (64 + 16 * total[..., np.newaxis] * angles)
    error = ROUNDING * errors.sum(axis=-1) + _LOST
    middle, delta = np.rint(mean), np.zeros(total.shape)
    terms = (real + 1j * imaginary) * np.exp(1j * (phases - middle[..., np.newaxis] * angles))
    turn = np.exp(-1j * angles)
    for offset, turned in ((-1, terms / turn), (0, terms), (1, terms * turn)):
        mode, h = middle + offset, turned.real.sum(axis=-1)
        rounding = 8 * ROUNDING * (1 + log_moment + mode * tilt)
        scale = a * np.exp(log_moment - mode * tilt + rounding)
        delta = np.maximum(delta, scale * (np.maximum(h, 0) + error) + wrapped)
    return delta * (1 + RELATIVE_ERROR)


def _tilt(reduction: MatchCountReduction, epsilon: float) -> tuple[float, float]:
    """
    Return a and ln(b/a); a is rounded up, and b by no more than a.

    Raising both by the same amount raises δ by that amount times u(m). With p + q = 1,
    a = p - q - q·(e^ε - 1) and b - a = e^ε - 1. If a ≤ 0 then δ = 0.
    """
    growth = math.expm1(epsilon)
    lost = reduction.blanket / 2 * growth
    a = reduction.signal - lost + 8 * ROUNDING * (reduction.signal + lost)
    return a, math.log1p(growth / a) * (1 - 16 * ROUNDING) if a > 0 else 0.0


def _characteristic(counts: Vector, chances: Vector, halves: Vector) -> tuple[Vector, Vector]:
    """
    Return ln|φ(2h)| and the phase of φ(2h), for sums of independent bits; same shape as h.

    Of the forms |1 - c + c·e^(2ih)|² = 1 - 4c(1-c)·sin²h = cos²h + (1-2c)²·sin²h, the one without
    cancellation is used.
    """
    sine, cosine = np.sin(halves), np.cos(halves)
    logs, phases = np.zeros(halves.shape), np.zeros(halves.shape)
    for number, chance in zip(np.moveaxis(counts, -1, 0), chances.tolist(), strict=True):
        if number.any():
            lost = 4 * chance * (1 - chance) * sine**2
            log, small = np.log1p(-np.minimum(lost, 1 / 2)), lost > 1 / 2
            log[small] = np.log((cosine**2 + (1 - 2 * chance) ** 2 * sine**2)[small])
            turn = np.arctan2(2 * chance * sine * cosine, 1 - 2 * chance * sine**2)
            logs += number[..., np.newaxis] / 2 * log
            phases += number[..., np.newaxis] * turn
    return logs, phases
