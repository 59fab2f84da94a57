"""
The general privacy blanket [BBGN19] for one pair of inputs, as a list of atoms.

The privacy of a pair x, x' depends only on the joint distribution, under the blanket U, of the
ratios R_x/U and R_x'/U: a list of atoms. Continuous distributions become such a list by
*mean-preserving splits*: on a cell where one ratio is constant, mass is split between both ends so
that the other ratio keeps its mean. That raises the expectation of every convex function of
R_x - e^ε·R_x', so the result remains a bound.

docs/theory/accounting.md proves that the pairs below are the least private ones.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import special

from shuffledp.common.accounting.anonymity_set import AnonymitySet, Bins
from shuffledp.common.accounting.binomial import RELATIVE_ERROR
from shuffledp.common.accounting.count_distributions import Binomial, check_between
from shuffledp.common.accounting.epsilon_search import least_epsilon
from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.lab.bounds.randomizers import rappor_probabilities

_CELLS: Final = 1000
"""Cells on either side of 0 between the two inputs of a Laplace pair."""
_SUM_ERROR: Final = 1e-12
MAX_LAPLACE_EPSILON: Final = 20.0
MAX_HASHES: Final = 16
"""Maximum number of RAPPOR's hashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlanketPair:
    """Atoms of U with the two ratios, each of shape (atoms,); U, R_x and R_x' each sum to 1."""

    blanket: float
    """γ: probability that a report is a draw from U, for every input. A dummy always is."""
    local_epsilon: float
    """Largest |ln(R_x / R_x')|; above 0."""
    chances: Vector
    """Probabilities under U."""
    first: Vector
    """R_x / U for each atom."""
    second: Vector
    """R_x' / U for each atom."""

    def __post_init__(self) -> None:
        check_between("blanket", self.blanket, 0, 1)
        if not self.local_epsilon > 0:
            raise AccountingError(f"local epsilon is {self.local_epsilon}; it must be above 0")
        for name, distribution in (
            ("U", self.chances),
            ("R_x", self.chances * self.first),
            ("R_x'", self.chances * self.second),
        ):
            if (distribution < 0).any() or abs(float(distribution.sum()) - 1) > _SUM_ERROR:
                raise AccountingError(
                    f"the probabilities of {name} sum to {distribution.sum()}; the sum must be 1"
                )


def rappor_pair(f: float, p: float, q: float, *, hashes: int) -> BlanketPair:
    """
    Describe one report of RAPPOR with a Bloom filter, within one cohort [EPK14].

    The two words share no bit: they are the least private pair (docs/theory/accounting.md). U sets
    every bit with probability p*, as if the word left it unset. A set bit multiplies the ratio to U
    by q*/p* if it is shown, else by (1-q*)/(1-p*), so γ = ((1-q*)/(1-p*))^hashes.

    A word sets `hashes` bits, 1 .. MAX_HASHES; f, p and q are as in `rappor_probabilities`. Raises
    AccountingError if an argument is out of range, p* is 0, or q* is 1.
    """
    check_between("hashes", hashes, 1, MAX_HASHES)
    set_probability, unset_probability = rappor_probabilities(f, p, q)
    if not 0 < unset_probability < set_probability < 1:
        raise AccountingError(
            f"p* = {unset_probability}, q* = {set_probability}; without noise there is no bound"
        )
    up, down = set_probability / unset_probability, (1 - set_probability) / (1 - unset_probability)
    ones = np.arange(hashes + 1.0)
    chances = scipy.stats.binom.pmf(ones, hashes, unset_probability)
    ratios = up**ones * down ** (hashes - ones)
    return BlanketPair(
        blanket=down**hashes,
        local_epsilon=hashes * math.log(up / down),
        chances=np.outer(chances, chances).ravel(),
        first=np.repeat(ratios, hashes + 1),
        second=np.tile(ratios, hashes + 1),
    )


def laplace_pair(local_epsilon: float) -> BlanketPair:
    """
    Describe a number in -1 .. 1 with Laplace noise of scale b = 2/ε, for the inputs 1 and -1.

    1 and -1 are the least private pair (docs/theory/accounting.md). U is the noise around 0, so
    R_x/U = exp((|y| - |y-x|)/b), which varies only between 0 and x and is at least γ = e^(-1/b) =
    e^(-ε/2).

    Raises AccountingError unless local_epsilon is above 0 and at most MAX_LAPLACE_EPSILON.
    """
    if not 0 < local_epsilon <= MAX_LAPLACE_EPSILON:
        raise AccountingError(
            f"local epsilon is {local_epsilon}; it must be above 0 and at most "
            f"{MAX_LAPLACE_EPSILON}"
        )
    rate = local_epsilon / 2
    # On the half line y > 0, R_1/U is e^(rate·(2y - 1)) up to 1, and beyond it e^rate. Masses and
    # means of cells are integrals of U's density rate/2·e^(-rate·y), and of that times the ratio.
    edges = np.linspace(0, 1, _CELLS + 1)
    ratios: Vector = np.exp(rate * (2 * edges - 1))
    masses = -np.exp(-rate * edges[:-1]) * np.expm1(-rate * np.diff(edges)) / 2
    means = np.exp(rate * (edges[:-1] - 1)) * np.expm1(rate * np.diff(edges)) / 2
    width = np.diff(ratios)
    above = np.divide(
        means - masses * ratios[:-1], width, out=np.zeros_like(width), where=width > 0
    )
    to_upper = np.clip(above, 0, masses)
    chances = np.append(masses - to_upper, math.exp(-rate) / 2)
    chances[1:] += to_upper
    away = np.full(len(ratios), math.exp(-rate))
    return BlanketPair(
        blanket=math.exp(-rate),
        local_epsilon=local_epsilon,
        chances=np.concatenate([chances, chances]),
        first=np.concatenate([ratios, away]),
        second=np.concatenate([away, ratios]),
    )


_CELLS_PER_DEVIATION: Final = 24.0
"""Grid cells in one root mean square of a term; splits then cost about 1e-4 of ε."""
_WINDOW: Final = 9.0
"""Half the window in standard deviations of the tilted sum; one term's range is added."""
_MIN_SIZE: Final = 1 << 14
_MAX_SIZE: Final = 1 << 22
"""Maximum size of the transform. Above some 10^8 blanket reports, a coarse grid costs 1e-3 of ε."""
_BINS: Final = 48
_MAX_BINNED_MEAN: Final = 16.0
"""Mean number of blanket reports up to which M is binned even without dummies."""
_COEFFICIENT_ERROR: Final = 4 * float(np.finfo(np.float64).eps)
"""Rounding error of a coefficient per doubling of the transform's size."""
_NEGLIGIBLE_LOG_MODULUS: Final = -80.0
"""Logarithm of the modulus below which a frequency is bounded, not computed."""
_TILTS: Final = np.concatenate([np.arange(0.5, 10, 0.5), np.geomspace(10, 1000, 20)])
"""Tilts tried in Chernoff's bound, in inverse standard deviations above the tilt for mean 0."""


def blanket_delta(pair: BlanketPair, anonymity_set: AnonymitySet, epsilon: float) -> float:
    """
    Return an upper bound on δ for one pair of the victim's inputs, by the general blanket [BBGN19].

    Fixed dummies are drawn from U; random ones only lower δ, and are not counted. Raises
    AccountingError unless epsilon is at least 0. Cost: one transform of size up to 2^22; if M is
    binned, a pass over it for each bin. About 10 ms at 10^6 users, most of a second at 10^9.
    """
    if not epsilon >= 0:
        raise AccountingError(f"epsilon is {epsilon}; it must be at least 0")
    possible = pair.chances > 0
    chances = pair.chances[possible]
    terms = pair.first[possible] - math.exp(epsilon) * pair.second[possible]
    if epsilon >= pair.local_epsilon or not (terms > 0).any():
        return 0.0
    dummies = max(0, anonymity_set.dummies - anonymity_set.known_dummies)
    users = anonymity_set.others + 1
    if dummies == 0 and users * pair.blanket > _MAX_BINNED_MEAN:
        total = _Sum(terms, chances, share=pair.blanket, least=users, most=users)
        return min(1.0, total.mean_excess(users) / (users * pair.blanket))
    others = Binomial(anonymity_set.others, pair.blanket)
    bins = Bins.of(others, _BINS)
    masses, missed = bins.masses(others)
    sizes = bins.edges + 1 + dummies
    least, most = int(sizes[0]), int(sizes[-1])
    total = _Sum(terms, chances, share=1.0, least=least, most=most)
    given = np.array([total.mean_excess(int(size)) for size in sizes]) / sizes
    return min(1.0, missed + float(masses @ given))


def blanket_epsilon(pair: BlanketPair, anonymity_set: AnonymitySet, delta: float) -> float:
    """
    Return an upper bound on the central ε for one pair of inputs, at most the local ε.

    Raises AccountingError if delta is below MIN_DELTA, or not below 1. Cost: about ten evaluations
    of δ.
    """
    dummies = max(0, anonymity_set.dummies - anonymity_set.known_dummies)
    blanket_size = 1 + anonymity_set.others * pair.blanket + dummies
    variance = float(pair.chances @ (pair.first - pair.second) ** 2) / blanket_size
    return least_epsilon(
        lambda epsilon: blanket_delta(pair, anonymity_set, epsilon),
        delta=delta,
        local_epsilon=pair.local_epsilon,
        guess=math.sqrt(variance * max(1.0, -2 * math.log(delta))) if delta > 0 else 1.0,
    )


class _Sum:
    """Sums of independent terms on one grid, tilted so that their mean is 0."""

    def __init__(
        self, terms: Vector, chances: Vector, *, share: float, least: int, most: int
    ) -> None:
        """Prepare sums of least .. most terms, each present with probability `share`, else 0."""
        top = float(terms.max())
        terms = np.maximum(terms, -most * top)  # below that no sum can be positive
        reach = top - float(terms.min())
        distribution = np.log(np.append(chances * share, max(1 - share, 1e-300)), dtype=np.float64)
        tilt = _mean_zero_tilt(np.append(terms, 0.0), distribution)
        active = np.exp(distribution[:-1] + tilt * (terms - top))
        deviation = math.sqrt(float(active @ terms**2) / float(active.sum()))
        window = min(_WINDOW * math.sqrt(most * share) * deviation + reach, most * reach)
        step = min(deviation / _CELLS_PER_DEVIATION, 2 * window / _MIN_SIZE)
        while True:
            places = self._lay(terms / step, chances * share, 1 - share, step)
            tilted = np.exp(self._log_distribution + self._tilt * self._values - self._cumulant)
            deviation = math.sqrt(float(tilted @ self._values**2))
            window = max(reach, min(_WINDOW * math.sqrt(most) * deviation + reach, most * reach))
            if 2 * window <= step * _MAX_SIZE:
                break
            step = 2.1 * window / _MAX_SIZE
        size = scipy.fft.next_fast_len(int(2 * window / step) + 8, real=True)
        size += size % 2
        self._size, self._top = size, step * (size // 2)
        tilts = self._tilt + _TILTS / (math.sqrt(most) * deviation)
        self._tilts = np.append(tilts[tilts * self._top >= 1], self._tilt + 1 / self._top)
        self._cumulants = np.array([self._cumulant_at(float(tilt)) for tilt in self._tilts])
        self._transform(tilted, places % size, step, least)

    def _lay(self, scaled: Vector, chances: Vector, idle: float, step: float) -> NDArray[np.int64]:
        """
        Put one term on the grid, 0 with probability `idle`, and tilt it; return its places.

        Every atom is split between the two neighbouring whole numbers, preserving its mean.
        """
        floor = np.floor(scaled)
        above = chances * (scaled - floor)
        low, high = min(0, int(floor.min())), max(0, int(floor.max()) + 1)
        index = (floor - low).astype(np.int64)
        distribution = np.zeros(high - low + 1)
        np.add.at(distribution, index, chances - above)
        np.add.at(distribution, index + 1, above)
        distribution[-low] += idle
        places = np.flatnonzero(distribution > 0) + low
        self._values = places.astype(np.float64) * step
        self._log_distribution = np.log(distribution[distribution > 0])
        self._tilt = _mean_zero_tilt(self._values, self._log_distribution)
        self._cumulant = self._cumulant_at(self._tilt)
        return places

    def _transform(
        self, tilted: Vector, places: NDArray[np.int64], step: float, least: int
    ) -> None:
        """
        Compute the spectra of one tilted term, and of the sum's weights s·e^(-θs) at s > 0.

        Frequencies that vanish in every sum of at least `least` terms are bounded together.
        """
        size = self._size
        cyclic = np.zeros(size)
        np.add.at(cyclic, places, tilted)
        spectrum: NDArray[np.complex128] = scipy.fft.rfft(cyclic)
        sums = step * np.arange(1, size // 2)
        weights = np.zeros(size)
        weights[1 : size // 2] = sums * np.exp(-self._tilt * sums)
        weigh: NDArray[np.complex128] = scipy.fft.rfft(weights)
        self._unit = _COEFFICIENT_ERROR * math.log2(size)
        weights_error = self._unit * math.sqrt(float(weights @ weights))
        twice = np.full(len(spectrum), 2.0)
        twice[[0, -1]] = 1.0
        modulus = np.maximum(np.abs(spectrum), 1e-300)
        upper = np.log(modulus + self._unit * (1 + modulus))
        kept = least * upper > _NEGLIGIBLE_LOG_MODULUS
        largest = twice * (np.abs(weigh) + weights_error)
        self._dropped = float(largest[~kept] @ np.exp(least * upper[~kept]))
        self._log_modulus, self._angle = np.log(modulus[kept]), np.angle(spectrum[kept])
        self._log_upper = upper[kept]
        self._weights, self._largest = (twice * weigh)[kept], largest[kept]
        self._weights_error = weights_error * twice[kept]

    def mean_excess(self, count: int) -> float:
        """Return an upper bound on E(S)_+ for the sum S of `count` terms."""
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
        """Return the cumulant generating function ln E[e^(tilt·term)]."""
        return float(special.logsumexp(self._log_distribution + tilt * self._values))


def _mean_zero_tilt(values: Vector, log_distribution: Vector) -> float:
    """Return the least tilt θ ≥ 0 with a mean of at least 0. Any θ is valid; this is accurate."""
    top = float(values.max())

    def mean(tilt: float) -> float:
        return float(np.exp(log_distribution + tilt * (values - top)) @ values)

    if mean(0.0) >= 0:
        return 0.0
    high = 1 / top
    while mean(high) < 0:
        high *= 2
    return float(scipy.optimize.brentq(mean, 0.0, high, rtol=1e-12))
