"""
Covariances of debiased shares, and so exact variances of weighted sums such as ranges of buckets.

Every estimator of shares f is linear in the counts of cells: f = (B·counts - constant) / (n·κ·s),
for n users whose reports are kept with probability κ. A report in cell c contributes the column
B_c. Given the user's item x it does so on average by b + s·e_x, with the unit vector e_x; a uniform
dummy contributes u on average. For independent reports, N in all with cells drawn from π,

    Cov(B·counts) = N·B·diag(π)·Bᵀ - n·κ²·Σ_x f_x (b + s·e_x)(b + s·e_x)ᵀ - M·u·uᵀ + Cov(z)

with M dummies and the numbers z of dummies that name each item. z is independent by item if the
shuffler draws it. If its total is known (`each-item`, `clusters`), items share what is over, and
two items have the covariance -Var z / (d - 1).

The true shares sum to 1. Where the estimates do not, because reports support many items at once,
f - Σ1·(1ᵀf - 1) / 1ᵀΣ1 is the linear estimate of least variance that does, with the covariance
Σ - Σ11ᵀΣ / 1ᵀΣ1. For sums of many items it is far better. Derived here; checked by simulation. Run
by the analyzer's operator.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, Self, cast

import numpy as np

from common.mechanisms.base import Channel, Mechanism, Mixture, Vector
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.hierarchy import Hierarchy
from common.mechanisms.randomized_response import Grr
from common.mechanisms.registry import mechanism_of
from common.mechanisms.signed import Signed
from common.mechanisms.square_wave import SquareWave
from common.mechanisms.unary import UnaryEncoding
from common.task.task import Task

_MOST_CELLS: Final = 2**26
"""Cells to visit for exact variances of prefixes of hashed reports or places: a few seconds."""
_FEWEST_PREFIXES: Final = 64
_MOST_PREFIXES: Final = 256
_NEGLIGIBLE: Final = 1e-12
"""Variance of the sum of all shares that is a rounding error, relative to that of the shares."""


class _Linear(NamedTuple):
    """B and its transpose, the vectors b and u and the number s of the module, and π's channel."""

    gather: Callable[[Vector], Vector]
    scatter: Callable[[Vector], Vector]
    base: Vector
    gain: float
    dummy: Vector
    channel: Channel


@dataclass(frozen=True, kw_only=True, eq=False)
class ShareCovariance:
    """The covariance matrix of a batch's shares, once they sum to 1: see `summing_to_one`."""

    mechanism: Mechanism
    shares: Vector
    mixture: Mixture
    total_is_known: bool
    """Whether the total of the dummies that name items is known; see the module."""
    groups: int = 1
    """Number of groups of a breakdown, equally many consecutive items each."""

    @classmethod
    def of(cls, task: Task, shares: Vector, mixture: Mixture) -> Self:
        """Return the covariances of a task's batch; `shares` are the refined ones, for the true."""
        mechanism = mechanism_of(task)
        if isinstance(mechanism, Signed):
            noise = mechanism.clusters.item_variance(mixture.n_real, mechanism.domain_size)
            mixture = replace(mixture, n_dummies=0.0, item_variance=noise)
        return cls(
            mechanism=mechanism,
            shares=shares,
            mixture=mixture,
            total_is_known=task.shuffler.law == "none",
            groups=task.groups,
        )

    def summing_to_one(self, debiased: Vector) -> Vector:
        """Return the linear estimate of least variance that sums to 1, from debiased shares."""
        shares: Vector = debiased - self._correction * (debiased.sum() - 1)
        return shares

    @cached_property
    def _with_total(self) -> Vector:
        """Return each debiased share's covariance with the sum of all; 0 if that is constant."""
        found = self._debiased_with(np.ones(self.mechanism.domain_size))
        least = _NEGLIGIBLE * float(self.mechanism.variance(self.shares, self.mixture).sum())
        return found if found.sum() > least else np.zeros_like(found)

    @cached_property
    def _correction(self) -> Vector:
        return self._with_total / (self._with_total.sum() or 1.0)

    def of_shares(self) -> Vector:
        """Return the variance of each share, shape (domain_size,)."""
        single = self.mechanism.variance(self.shares, self.mixture)
        return np.maximum(single - self._correction * self._with_total, 0.0)

    def with_sum(self, weights: Vector) -> Vector:
        """
        Return each share's covariance with a weighted sum of shares, shape (domain_size,).

        Cost: two transforms for hashed reports, else a few passes over the items.
        """
        return self._debiased_with(weights) - self._correction * (self._with_total @ weights)

    def with_group_totals(self) -> Vector:
        """
        Return each share's covariance with the sum of its group's shares, shape (domain_size,).

        Cost: that of `with_sum` for each group.
        """
        parts = self._with_total.reshape(self.groups, -1).sum(axis=1)
        together = np.repeat(parts, self.mechanism.domain_size // self.groups)
        found: Vector = self._debiased_with_groups - self._correction * together
        return found

    @cached_property
    def _debiased_with_groups(self) -> Vector:
        found = np.empty(self.mechanism.domain_size)
        for items in np.split(np.arange(len(found)), self.groups):
            member = np.zeros(len(found))
            member[items] = 1.0
            found[items] = self._debiased_with(member)[items]
        return found

    def _debiased_with(self, weights: Vector) -> Vector:
        mechanism, mixture = self.mechanism, self.mixture
        if isinstance(mechanism, Hierarchy):
            return mechanism.covariances(weights, mixture.n_real)
        if isinstance(mechanism, UnaryEncoding | StringHashing):
            # Bits are independent, and so are hashes of strings in this model.
            independent: Vector = mechanism.variance(self.shares, mixture) * weights
            return independent
        maps, n, kept = self._linear, mixture.n_real, mixture.keep_probability
        n_reports = n * kept + mixture.n_dummies
        square = n_reports * maps.gather(maps.channel.forward(self.shares) * maps.scatter(weights))
        means = self.shares * (maps.base @ weights + maps.gain * weights)
        users = n * kept**2 * (maps.base * means.sum() + maps.gain * means)
        dummies = mixture.n_dummies * maps.dummy * (maps.dummy @ weights)
        named = mixture.item_variance * weights
        if self.total_is_known:
            size = mechanism.domain_size
            named = (named - named.sum() / size) * size / (size - 1)
        total: Vector = square - users - dummies + named
        return total / (n * kept * maps.gain) ** 2

    def of_sums(self, weights: Iterable[Vector]) -> Vector:
        """Return the variances of weighted sums of shares, each given by (domain_size,) weights."""
        found = [float(each @ self.with_sum(each)) for each in weights]
        return np.maximum(np.array(found, dtype=np.float64), 0.0)

    def of_prefixes(self) -> Vector:
        """
        Return the variance of the sum of shares up to and including each item of its group.

        For hashed reports and square waves it is interpolated between exact variances of the first
        and the last prefix of each group and, of few groups, 64 to 256 others in all. Standard
        errors are then exact to some 5 %, of square waves to 10 %. Otherwise it is exact. Shape
        (domain_size,). Cost: that of `with_sum` for each of these prefixes.
        """
        together = np.cumsum(self._with_total.reshape(self.groups, -1), axis=1).ravel()
        removed = together**2 / (self._with_total.sum() or 1.0)
        return np.maximum(self._debiased_prefixes() - removed, 0.0)

    def _debiased_prefixes(self) -> Vector:
        """
        Return variances of prefixes before `summing_to_one`, by a model of covariances.

        By the model, items i and j of a group have the covariance a_i + a_j + b, which follows from
        each one's covariance with its group's total. It is exact for randomized response. Of hashed
        reports, what it leaves of exact variances is interpolated; of square waves, which it does
        not fit, these variances themselves. Derived here.
        """
        mechanism, mixture, groups = self.mechanism, self.mixture, self.groups
        if isinstance(mechanism, Hierarchy):
            return mechanism.prefix_variances(mixture.n_real)
        single = mechanism.variance(self.shares, mixture).reshape(groups, -1)
        if isinstance(mechanism, UnaryEncoding | StringHashing):
            return np.cumsum(single, axis=1).ravel()
        with_group, size = self._debiased_with_groups.reshape(groups, -1), single.shape[1]
        others, items = with_group - single, np.arange(1.0, size + 1)
        pairs = items * (items - 1) / max(1, size - 1)
        within = 2 * (items - 1) * np.cumsum(others, axis=1)
        within -= pairs * others.sum(axis=1, keepdims=True)
        model: Vector = np.cumsum(single, axis=1) + within / max(1, size - 2)
        model[:, -1] = with_group.sum(axis=1)  # also of two items, where the formula is 0 / 0
        if isinstance(mechanism, Grr):
            return model.ravel()
        if not isinstance(mechanism, LocalHashing):
            model[:] = 0.0  # the nearer two places of a square wave, the more dependent they are
        n_cells = len(self._linear.channel.scale)
        number = min(_MOST_PREFIXES, max(_FEWEST_PREFIXES, _MOST_CELLS // n_cells)) // groups
        places = np.unique(np.linspace(0, size - 1, max(2, min(number, size))).astype(np.int64))
        found, every = [], np.arange(groups * size)
        for group, total in enumerate(with_group.sum(axis=1)):
            sums = [single[group, 0], *[total] * (size > 1)]
            for end in group * size + places[1:-1]:
                weights = ((group * size <= every) & (every <= end)).astype(np.float64)
                sums.insert(-1, weights @ self._debiased_with(weights))
            left = np.interp(np.arange(size), places, sums - model[group, places])
            found.append(model[group] + left)
        return np.concatenate(found)

    @cached_property
    def _linear(self) -> _Linear:
        mechanism, mixture = self.mechanism, self.mixture
        own = mixture.n_real * mixture.keep_probability
        real_share, ones = own / (own + mixture.n_dummies), np.ones(mechanism.domain_size)
        if isinstance(mechanism, SquareWave):
            band, channel = mechanism.band, mechanism.channel(real_share)
            level = band.solve(np.ones(mechanism.places))
            return _Linear(
                gather=band.solve,
                scatter=band.solve_adjoint,
                base=mechanism.floor * level,
                gain=mechanism.rise,
                dummy=level / mechanism.places,
                channel=channel,
            )
        counting = cast("Grr | LocalHashing", mechanism)
        channel = (
            Grr.channel(counting, real_share)  # without the clusters of `signed`
            if isinstance(counting, Grr)
            else counting.channel(real_share)
        )
        return _Linear(
            gather=channel.incidence.adjoint,
            scatter=channel.incidence.forward,
            base=counting.q * ones,
            gain=counting.p - counting.q,
            dummy=counting.q_dummy * ones,
            channel=channel,
        )
