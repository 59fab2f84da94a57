"""
The general privacy blanket: for randomizers that no count of matches describes.

With L = (R_x - e^ε·R_x')(Y)/U(Y) for Y drawn from the blanket's law U, and M = 1 + Bin(n_h, γ) + D
draws from U around the victim, itself included [BBGN19],

    δ(ε) = E_M[(1/M)·E(L_1 + … + L_M)_+],   and for D = 0   δ(ε) = E(G_1 + … + G_n)_+ / (nγ),

where n = n_h + 1 and G is L with chance γ and else 0. Every figure is an upper bound:

* L is put on a grid by mean-preserving splits, and (·)_+ of a sum is convex in each term;
* with dummies, M is binned and charged at its low edge: ΣL/M is a reverse martingale;
* the law of the sum comes from a Fourier transform of the *tilted* law P_θ ~ e^(θl), with θ such
  that its mean is 0: E(S)_+ = K(θ)^m·E_θ[S·e^(-θS); S > 0], where nothing is small, so that the
  transform's rounding is relative to δ and not to 1. A bound on that rounding is added;
* what is above the transform's window, E[S; S ≥ T] ≤ T·K(θ')^m·e^(-θ'T) for every θ' ≥ 1/T, is
  added; what is below it folds back to where it counts.

Formula 1 is faster and finer where it applies. Run by `shuffledp account`.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import fft, optimize, special

from common.accounting.blanket_pairs import BlanketPair
from common.accounting.counts import Binomial
from common.accounting.crowd import Crowd
from common.accounting.epsilon_search import least_epsilon
from common.accounting.surroundings import Bins
from common.accounting.tails import RELATIVE_ERROR
from common.errors import AccountingError
from common.mechanisms.randomizer import Vector

_CELLS_PER_DEVIATION: Final = 24.0
"""Grid cells in one root mean square of L: splits then cost some 1e-4 of ε."""
_WINDOW: Final = 9.0
"""Half the window, in standard deviations of the tilted sum; one term's range is added."""
_MIN_SIZE: Final = 1 << 14
_MAX_SIZE: Final = 1 << 22
"""Sizes of the transform. Beyond about 10^8 blanket reports the grid is coarser, to 1e-3 of ε."""
_BINS: Final = 48
_MANY: Final = 16.0
"""Mean number of blanket reports up to which every M has a bin of its own."""
_UNIT: Final = 4 * float(np.finfo(np.float64).eps)
"""Rounding of a transform's coefficient, for each doubling of its size."""
_NOTHING: Final = -80.0
"""Logarithm below which the modulus of a sum's spectrum is not evaluated, only allowed for."""
_TILTS: Final = np.concatenate([np.arange(0.5, 10, 0.5), np.geomspace(10, 1000, 20)])
"""Tilts at which Chernoff's bound is tried, in inverse standard deviations above θ."""


def blanket_delta(pair: BlanketPair, crowd: Crowd, epsilon: float) -> float:
    """
    Bound δ from above for one pair of the victim's inputs.

    Args:
        pair: The pair, as the blanket sees it.
        crowd: Honest users, and dummies that are draws from U. A random number of dummies is not
            counted; it can only help.
        epsilon: Central ε, at least 0.

    Raises:
        AccountingError: epsilon is negative or not a number.

    Cost: one transform, up to 2^22; with dummies one pass over it for each of 48 bins. Some
    10 ms at 10^6 users, most of a second at 10^9.
    """
    if not epsilon >= 0:
        raise AccountingError(f"epsilon is {epsilon}; it must be at least 0")
    possible = pair.chances > 0
    chances = pair.chances[possible]
    terms = pair.first[possible] - math.exp(epsilon) * pair.second[possible]
    if epsilon >= pair.local_epsilon or not (terms > 0).any():
        return 0.0
    dummies = max(0, crowd.dummies - crowd.known_dummies)
    users = crowd.others + 1
    if dummies == 0 and users * pair.blanket > _MANY:
        total = _Sum(terms, chances, share=pair.blanket, least=users, most=users)
        return min(1.0, total.mean_excess(users) / (users * pair.blanket))
    others = Binomial(crowd.others, pair.blanket)
    bins = Bins.of(others, _BINS)
    masses, missed = bins.masses(others)
    sizes = bins.edges + 1 + dummies
    least, most = int(sizes[0]), int(sizes[-1])
    total = _Sum(terms, chances, share=1.0, least=least, most=most)
    given = np.array([total.mean_excess(int(size)) for size in sizes]) / sizes
    return min(1.0, missed + float(masses @ given))


def blanket_epsilon(pair: BlanketPair, crowd: Crowd, delta: float) -> float:
    """
    Bound the central ε from above for one pair of the victim's inputs; at most the local ε.

    Raises:
        AccountingError: delta is not between MIN_DELTA and 1.

    Cost: some ten δ.
    """
    crowding = 1 + crowd.others * pair.blanket + max(0, crowd.dummies - crowd.known_dummies)
    variance = float(pair.chances @ (pair.first - pair.second) ** 2) / crowding
    return least_epsilon(
        lambda epsilon: blanket_delta(pair, crowd, epsilon),
        delta=delta,
        local_epsilon=pair.local_epsilon,
        guess=math.sqrt(variance * max(1.0, -2 * math.log(delta))) if delta > 0 else 1.0,
    )


class _Sum:
    """Sums of independent terms on one grid, tilted so that their mean is 0."""

    def __init__(
        self, terms: Vector, chances: Vector, *, share: float, least: int, most: int
    ) -> None:
        """Terms with their chances, each there with probability share; least .. most of them."""
        top = float(terms.max())
        terms = np.maximum(terms, -most * top)  # below that no sum is positive anyhow
        reach = top - float(terms.min())
        law = np.log(np.append(chances * share, max(1 - share, 1e-300)), dtype=np.float64)
        tilt = _mean_zero_tilt(np.append(terms, 0.0), law)
        active = np.exp(law[:-1] + tilt * (terms - top))
        deviation = math.sqrt(float(active @ terms**2) / float(active.sum()))
        window = min(_WINDOW * math.sqrt(most * share) * deviation + reach, most * reach)
        step = min(deviation / _CELLS_PER_DEVIATION, 2 * window / _MIN_SIZE)
        while True:
            places = self._lay(terms / step, chances * share, 1 - share, step)
            tilted = np.exp(self._log_law + self._tilt * self._values - self._cumulant)
            deviation = math.sqrt(float(tilted @ self._values**2))
            window = max(reach, min(_WINDOW * math.sqrt(most) * deviation + reach, most * reach))
            if 2 * window <= step * _MAX_SIZE:
                break
            step = 2.1 * window / _MAX_SIZE
        size = fft.next_fast_len(int(2 * window / step) + 8, real=True)
        size += size % 2
        self._size, self._top = size, step * (size // 2)
        tilts = self._tilt + _TILTS / (math.sqrt(most) * deviation)
        self._tilts = np.append(tilts[tilts * self._top >= 1], self._tilt + 1 / self._top)
        self._cumulants = np.array([self._cumulant_at(float(tilt)) for tilt in self._tilts])
        self._transform(tilted, places % size, step, least)

    def _lay(self, scaled: Vector, chances: Vector, idle: float, step: float) -> NDArray[np.int64]:
        """Put one term on the grid, 0 with the idle chance, and tilt it; give the places taken."""
        places, law = _on_grid(scaled, chances)
        law[-int(places[0])] += idle
        places, law = places[law > 0], law[law > 0]
        self._values, self._log_law = places.astype(np.float64) * step, np.log(law)
        self._tilt = _mean_zero_tilt(self._values, self._log_law)
        self._cumulant = self._cumulant_at(self._tilt)
        return places

    def _transform(
        self, tilted: Vector, places: NDArray[np.int64], step: float, least: int
    ) -> None:
        """
        Take the spectra of one term's law and of s·e^(-θs), s > 0, which the sum is weighed with.

        Frequencies that no sum of `least` terms has left are put into one allowance.
        """
        size = self._size
        cyclic = np.zeros(size)
        np.add.at(cyclic, places, tilted)
        spectrum: NDArray[np.complex128] = fft.rfft(cyclic)
        sums = step * np.arange(1, size // 2)
        weights = np.zeros(size)
        weights[1 : size // 2] = sums * np.exp(-self._tilt * sums)
        weigh: NDArray[np.complex128] = fft.rfft(weights)
        self._unit = _UNIT * math.log2(size)
        weights_error = self._unit * math.sqrt(float(weights @ weights))
        twice = np.full(len(spectrum), 2.0)
        twice[[0, -1]] = 1.0
        modulus = np.maximum(np.abs(spectrum), 1e-300)
        upper = np.log(modulus + self._unit * (1 + modulus))
        kept = least * upper > _NOTHING
        largest = twice * (np.abs(weigh) + weights_error)
        self._dropped = float(largest[~kept] @ np.exp(least * upper[~kept]))
        self._log_modulus, self._angle = np.log(modulus[kept]), np.angle(spectrum[kept])
        self._log_upper = upper[kept]
        self._weights, self._largest = (twice * weigh)[kept], largest[kept]
        self._weights_error = weights_error * twice[kept]

    def mean_excess(self, count: int) -> float:
        """Bound E(S)_+ from above for the sum S of `count` terms."""
        power, angle = np.exp(count * self._log_modulus), count * self._angle
        waves = self._weights.real * np.cos(angle) + self._weights.imag * np.sin(angle)
        excess = count * (self._log_upper - self._log_modulus)
        error = np.exp(count * self._log_upper) * -np.expm1(-excess)
        rounding = float(self._largest @ error + self._weights_error @ power) + self._dropped
        total = max(0.0, float(power @ waves)) + rounding
        beyond = float(np.min(count * self._cumulants - self._tilts * self._top))
        scale = math.exp(count * (self._cumulant + self._unit)) / self._size
        return total * scale * (1 + RELATIVE_ERROR) + self._top * math.exp(min(700.0, beyond))

    def _cumulant_at(self, tilt: float) -> float:
        return float(special.logsumexp(self._log_law + tilt * self._values))


def _mean_zero_tilt(values: Vector, log_law: Vector) -> float:
    """Give θ ≥ 0 at which the tilted mean is 0; any θ is correct, this one is accurate."""
    top = float(values.max())

    def mean(tilt: float) -> float:
        return float(np.exp(log_law + tilt * (values - top)) @ values)

    if mean(0.0) >= 0:
        return 0.0
    high = 1 / top
    while mean(high) < 0:
        high *= 2
    return float(optimize.brentq(mean, 0.0, high, rtol=1e-12))


def _on_grid(scaled: Vector, chances: Vector) -> tuple[NDArray[np.int64], Vector]:
    """Split every atom between its two neighbours among the whole numbers, keeping its mean."""
    floor = np.floor(scaled)
    above = chances * (scaled - floor)
    low, high = min(0, int(floor.min())), max(0, int(floor.max()) + 1)
    index = (floor - low).astype(np.int64)
    law = np.zeros(high - low + 1)
    np.add.at(law, index, chances - above)
    np.add.at(law, index + 1, above)
    return np.arange(low, high + 1), law
