"""
The square wave mechanism [LWLWLS20] and its estimator, by least squares over bands.

Item v reaches the places v .. v+w-1 of its band of width w: z = Aθ, where z_j sums θ over the items
that reach place j. There are w-1 more places than items, so many linear formulas recover θ from z.
Least squares has the least variance if all places are equally noisy.

Since z_j - z_(j-1) = θ_j - θ_(j-w), one formula is θ_v = Σ_k (z_(v-kw) - z_(v-1-kw)). The vectors
orthogonal to all bands have period w and sum to 0 over a period; they span w-1 dimensions. The
least-squares estimate subtracts from z its projection on them, and then applies that formula. For
the class of places j with j mod w = r, of size N_r and mean m_r, the projection is m_r - λ/N_r with
λ = Σ m_r / Σ 1/N_r.
"""

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.mechanisms import base
from shuffledp.common.mechanisms.band_response import BandResponse
from shuffledp.common.mechanisms.base import Counts, Mixture, Reports, Vector
from shuffledp.common.mechanisms.count_law import Draws, interval_table
from shuffledp.common.mechanisms.support import PlaceReports
from shuffledp.common.mechanisms.weights import OddsOfWeights, ResponseWeights
from shuffledp.common.messages.result import NORMAL, IntervalTable
from shuffledp.common.messages.submission import PLAIN_REPORT, plain_reports
from shuffledp.common.task.specs import MechanismSpec
from shuffledp.common.task.task import Task


@dataclass(frozen=True)
class Band:
    """The linear map A from items to places, its adjoint and its least-squares inverse."""

    items: int
    """d, at least 2."""
    width: int
    """w, at least 1."""

    @property
    def places(self) -> int:
        """Number of places: items + width - 1."""
        return self.items + self.width - 1

    def forward(self, theta: Vector) -> Vector:
        """Sum theta over the items that reach each place. (items,) -> (places,)."""
        sums = np.concatenate([[0.0], np.cumsum(theta)])
        place = np.arange(self.places)
        ends, starts = np.minimum(place + 1, self.items), np.maximum(place + 1 - self.width, 0)
        return np.asarray(sums[ends] - sums[starts])

    def adjoint(self, weights: Vector) -> Vector:
        """Sum weights over the places that each item reaches. (places,) -> (items,)."""
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        return np.asarray(sums[self.width :] - sums[: self.items])

    def solve(self, z: Vector) -> Vector:
        """Estimate θ from z = Aθ by least squares, (places,) -> (items,), in a few passes."""
        chains = self._chains(z - self._unreachable(z))
        return chains[1 : self.items + 1] - chains[: self.items]

    def _unreachable(self, z: Vector) -> Vector:
        """Return the projection of z on the vectors orthogonal to all bands, (places,)."""
        means = self._class_sums(z) * self._inverse_sizes
        level = means.sum() / self._inverse_sizes.sum()
        return np.asarray((means - level * self._inverse_sizes)[self._classes])

    def solve_adjoint(self, weights: Vector) -> Vector:
        """Apply the transpose of `solve`. (items,) -> (places,)."""
        steps = -np.diff(weights, append=np.zeros(self.width))  # coefficients of the chains
        places: Vector = self._chains(steps[::-1])[:0:-1]
        return places - self._unreachable(places)

    def variance(self, distribution: Vector, before: NDArray[np.int64] | None = None) -> Vector:
        """
        Return each estimate's variance if z is 1 at one place, drawn from π, and 0 elsewhere.

        With the coefficients s of an item's estimate this is exactly Σ s²π - (Σ sπ)². Without the
        projection s is 1 on the chain v, v-w, .., and -1 on the chain u, u-w, .. of u = v-1. Then c
        is subtracted, the projection of this s (see the module): c is m - λ/N, where m is the part
        of its class's places that are in the first chain, minus that in the second.

        `distribution` is π, shape (places,). `before` holds another u < v for each item v, for the
        variance of the sum of the estimates after u, up to v. Cost: a few passes over the places.
        """
        last = np.arange(self.items)
        before = last - 1 if before is None else before
        mass, inverse = self._class_sums(distribution), self._inverse_sizes
        chains = self._chains(distribution)
        own, less = chains[last + 1], chains[before + 1]
        here, there = last % self.width, before % self.width
        alike = here == there
        m_here = (last // self.width + 1) * inverse[here]
        m_there = -(before // self.width + 1) * inverse[there]
        level = (m_here + m_there) / inverse.sum()
        c_here = m_here + alike * m_there - level * inverse[here]
        c_there = m_there + alike * m_here - level * inverse[there]
        linear = m_here * mass[here] + m_there * mass[there] - level * (mass @ inverse)
        # Σ c²π over all places: c = -λ/N, corrected in one or two classes.
        square = level**2 * (mass @ inverse**2) + (
            (c_here**2 - (level * inverse[here]) ** 2) * mass[here]
            + (c_there**2 - (level * inverse[there]) ** 2) * mass[there] * ~alike
        )
        second = own + less - 2 * alike * less - 2 * (c_here * own - c_there * less) + square
        first = own - less - linear
        return np.asarray(second - first**2)

    @cached_property
    def _classes(self) -> NDArray[np.int64]:
        return np.arange(self.places) % self.width

    @cached_property
    def _inverse_sizes(self) -> Vector:
        """Return 1/N_r for each class r."""
        return 1 / np.bincount(self._classes, minlength=self.width)

    def _class_sums(self, z: Vector) -> Vector:
        return np.bincount(self._classes, weights=z, minlength=self.width).astype(np.float64)

    def _chains(self, z: Vector) -> Vector:
        """Return z_j + z_(j-w) + .. for j = -1 .. places-1, which is 0 at j = -1."""
        rows = -(-self.places // self.width)
        padded = np.zeros(rows * self.width)
        padded[: self.places] = z
        sums = padded.reshape(rows, self.width).cumsum(axis=0).ravel()
        return np.concatenate([[0.0], sums[: self.places]])


def best_reach(domain_size: int, local_epsilon: float) -> int:
    """
    Return the reach b to either side that preserves the most information about an item [LWLWLS20].

    b is a share (ε·e^ε - e^ε + 1) / (2e^ε·(e^ε - 1 - ε)) of the domain, rounded to items. The paper
    derives it from the mutual information of value and report. It falls from half of the domain at
    small ε to 0 at large ε. Uses 60 digits, because both differences cancel at small ε.

    The domain has at least 2 items. Reports without noise, of infinite local ε, have the reach 0.
    """
    epsilon = Decimal(local_epsilon)
    if epsilon.is_infinite():
        return 0
    with localcontext(Context(prec=60, rounding=ROUND_HALF_EVEN)):
        power = epsilon.exp()
        above = epsilon * power - power + 1
        below = 2 * power * (power - 1 - epsilon)
        return int((above * domain_size / below).to_integral_value())


@dataclass(frozen=True)
class SquareWave(OddsOfWeights, BandResponse, PlaceReports, base.Mechanism):
    """Report a place drawn by the band response, and estimate shares of items."""

    PLACE: ClassVar[str] = "a place"
    FACTORS: ClassVar[int] = 1

    @classmethod
    def specify(cls, request: base.MechanismRequest) -> MechanismSpec:
        weights = ResponseWeights.for_epsilon(request.local_epsilon)
        reach = best_reach(request.domain_size, request.local_epsilon)
        mechanism = cls(request.domain_size, reach, weights)
        return request.spec(weights, buckets=mechanism.places, dtype=PLAIN_REPORT)

    @classmethod
    def of(cls, task: Task) -> Self:
        reach = max(0, task.item_mechanism.buckets - task.domain_size) // 2
        base.check_answers(task.item_mechanism, task.domain_size + 2 * reach)
        return cls(task.domain_size, reach, ResponseWeights.of(task.item_mechanism))

    @cached_property
    def band(self) -> Band:
        """The map from items to places."""
        return Band(self.domain_size, self.width)

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        """Return a place below d+2b for each value, field item (uint32). Run by the user agent."""
        values = base.check_values(values, self.domain_size)
        return plain_reports(self.respond(values, rng))

    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        return plain_reports(rng.integers(0, self.places, size=count, dtype=np.int64))

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        places = reports["item"].astype(np.int64)
        return (item <= places) & (places < item + self.width)

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        truthful = rng.binomial(users, self.signal)
        values = np.repeat(np.arange(self.domain_size, dtype=np.int64), truthful)
        near = values + rng.integers(0, self.width, size=len(values), dtype=np.int64)
        n_uniform = int(users.sum()) - len(values) + n_dummies
        uniform = rng.multinomial(n_uniform, np.full(self.places, 1 / self.places))
        return np.asarray(np.bincount(near, minlength=self.places) + uniform, dtype=np.int64)

    def debias(self, cells: Counts, mixture: Mixture) -> Vector:
        """
        Estimate the share of each item without bias; see `Band`. Run by the analyzer.

        Subtracts the floor of noise and dummies, n·other/W + M/D, at every place. On average the
        rest is n·(true-other)/W times the sum of the shares of the items that reach the place. Each
        share is as noisy as differences of places: use sums over many items, or refine. Raises
        ValueError if reports were sampled, or dummies name items: no such protocol exists.
        """
        _check(mixture)
        floor = mixture.n_real * self.floor + mixture.n_dummies / self.places
        return self.band.solve((cells.astype(np.float64) - floor) / (mixture.n_real * self.rise))

    def variance(
        self, shares: Vector, mixture: Mixture, before: NDArray[np.int64] | None = None
    ) -> Vector:
        """
        Return the exact variance of each estimated share for the given true shares.

        A report names one place, drawn from π, and contributes Σ s²π - (Σ sπ)² with the
        coefficients s of the estimate. With π averaged over users this is too large by the variance
        of the users' means Σ sπ. Since the estimate is unbiased, the means of holders of the item
        and of other users differ by `rise`: f(1-f)·rise² is subtracted, with the item's share f.
        All this is linear in the shares: at unbiased shares it is an unbiased variance.

        `before` is that of `Band.variance`, for variances of sums of shares. The shares are scaled
        to sum to 1; if all are 0, a uniform distribution is assumed. Raises the errors of `debias`.
        """
        _check(mixture)
        uniform = np.full(self.places, 1 / self.places)
        held = shares if shares.any() else np.ones_like(shares)
        theta = held / held.sum()
        distribution = self.floor + self.rise * self.band.forward(theta)
        part = theta
        if before is not None:
            sums = np.concatenate([[0.0], np.cumsum(theta)])
            part = sums[1:] - sums[before + 1]
        own = self.band.variance(distribution, before) - part * (1 - part) * self.rise**2
        total = mixture.n_real * own + mixture.n_dummies * self.band.variance(uniform, before)
        return np.asarray(total / (mixture.n_real * self.rise) ** 2)

    def observed_variance(self, cells: Counts, shares: Vector, mixture: Mixture) -> Vector:
        """
        Estimate the variance of each debiased share from the counts of places.

        It is that of independent reports, Σ s²π̂ - (Σ sπ̂)², unbiased by n / (n-1), less that of the
        users' means, f(1-f)·rise² / n: see `variance`. No smoothed share hides a peak. Few reports
        may leave the places that matter empty: so it is at least the exact variance at the shares,
        clipped to 0 .. 1, and `unseen` is added.
        """
        n_reports, shares = max(2, int(cells.sum())), np.clip(shares, 0, 1)
        one = self.band.variance(cells / n_reports) * n_reports / (n_reports - 1)
        observed = one * n_reports / (mixture.n_real * self.rise) ** 2
        observed -= shares * (1 - shares) / mixture.n_real
        return np.maximum(observed, self.variance(shares, mixture)) + self.unseen(mixture)

    def unseen(self, mixture: Mixture) -> float:
        """
        Return the variance that one report more would add, at a place of weight 1, the largest.

        The places that matter to a sum of shares may be empty by chance, and then its variance is
        underestimated. A band of one place needs none: its intervals are exact.
        """
        return (self.width > 1) / (mixture.n_real * self.rise) ** 2

    def linear(self, real_share: float) -> base.Linear:
        level = self.band.solve(np.ones(self.places))
        return base.Linear(
            gather=self.band.solve,
            scatter=self.band.solve_adjoint,
            base=self.floor * level,
            gain=self.rise,
            dummy=level / self.places,
            channel=self.channel(real_share),
        )

    def variances_of_prefixes(self, shares: Vector, mixture: Mixture, groups: int) -> Vector:
        size = self.domain_size // groups
        return self.variance(shares, mixture, np.repeat(np.arange(groups) * size, size) - 1)

    def interval_table(self, mixture: Mixture) -> IntervalTable:
        """
        Return intervals by the exact distribution of the count of one place, an item's whole band.

        Of wider bands a share sums many counts of both signs: then it is the normal distribution.
        """
        if self.width > 1:
            return NORMAL
        dummies = Draws.coins(round(mixture.n_dummies), 1 / self.places)
        return interval_table(mixture.n_real, self.floor + self.rise, self.floor, (dummies,))

    def channel(self, real_share: float) -> base.Channel:
        return base.Channel(
            incidence=base.Incidence(self.band.forward, self.band.adjoint),
            scale=np.ones(self.places),
            signal=real_share * self.rise,
            floor=real_share * self.floor + (1 - real_share) / self.places,
        )


def _check(mixture: Mixture) -> None:
    """Raise ValueError for sampled reports or dummies that name items."""
    if mixture.keep_probability != 1 or mixture.item_mean or mixture.item_variance:
        raise ValueError("the square wave needs all reports, and no dummies that name items")
