"""
Covariances of debiased shares, and so exact variances of weighted sums such as ranges of buckets.

Every estimator of shares f is linear in the counts of cells: f = (B·counts - constant) / (n·κ·s),
for n users whose reports are kept with probability κ. A report in cell c contributes the column
B_c: on average b + s·e_x given the user's item x, with the unit vector e_x, and u for a uniform
dummy. For independent reports, N in all with cells drawn from π,

    Cov(B·counts) = N·B·diag(π)·Bᵀ - n·κ²·Σ_x f_x (b + s·e_x)(b + s·e_x)ᵀ - M·u·uᵀ + Cov(z)

with M dummies and the numbers z of dummies that name each item, independent by item if the shuffler
draws them. If their total is known (`each-item`, `clusters`), items share what is over, and two
items have the covariance -Var z / (d - 1). All of this is linear in f: unbiased at unbiased shares.

The true shares sum to 1. Where the estimates do not, because reports support many items at once,
f - Σ1·(1ᵀf - 1) / 1ᵀΣ1 is the linear estimate of least variance that does, with the covariance
Σ - Σ11ᵀΣ / 1ᵀΣ1. For sums of many items it is far better. Derived here; checked by simulation. Run
by the analyzer and its operator.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

import numpy as np

from shuffledp.common.mechanisms.base import Linear, Mechanism, Mixture, Vector
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.task.task import Task

_MOST_CELLS: Final = 2**26
"""Cells to visit for exact variances of prefixes of hashed reports: a few seconds."""
_FEWEST_PREFIXES: Final = 64
_MOST_PREFIXES: Final = 256
_NEGLIGIBLE: Final = 1e-12
"""Variance of the sum of all shares that is a rounding error, relative to that of the shares."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ShareCovariance:
    """The covariance matrix of a batch's shares, once they sum to 1: see `summing_to_one`."""

    mechanism: Mechanism
    shares: Vector
    """True shares, of sum 1, or unbiased ones: then covariances are unbiased too."""
    mixture: Mixture
    given_correction: Vector | None = None
    """Weights of `summing_to_one`; by default those of least variance at the shares."""
    groups: int = 1
    """Number of groups of a breakdown, equally many consecutive items each."""

    @classmethod
    def of(cls, task: Task, shares: Vector, mixture: Mixture) -> Self:
        """Return the covariances of a task's batch; see `of_mechanism`."""
        return cls.of_mechanism(mechanism_of(task), shares, mixture, groups=task.groups)

    @classmethod
    def of_mechanism(
        cls, mechanism: Mechanism, shares: Vector, mixture: Mixture, *, groups: int = 1
    ) -> Self:
        """Return the covariances of a batch for these shares; their sum is made 1."""
        mixture = mechanism.mixture_with_clusters(mixture)
        even = (1 - shares.sum()) / len(shares)
        return cls(mechanism=mechanism, shares=shares + even, mixture=mixture, groups=groups)

    def at(self, shares: Vector) -> Self:
        """Return the covariances at other shares, with the same weights of `summing_to_one`."""
        even = (1 - shares.sum()) / len(shares)
        return replace(self, shares=shares + even, given_correction=self.correction)

    def summing_to_one(self, debiased: Vector) -> Vector:
        """Return the linear estimate of least variance that sums to 1, from debiased shares."""
        return np.asarray(debiased - self.correction * (debiased.sum() - 1))

    @cached_property
    def _with_total(self) -> Vector:
        """Return each debiased share's covariance with the sum of all; 0 if that is constant."""
        found = self._debiased_with(np.ones(self.mechanism.domain_size))
        least = _NEGLIGIBLE * float(self._single.sum())
        return found if found.sum() > least else np.zeros_like(found)

    @cached_property
    def correction(self) -> Vector:
        """Part of the sum's distance from 1 that `summing_to_one` takes off each share; sum 1."""
        if self.given_correction is not None:
            return self.given_correction
        total = self._with_total.sum()
        return (
            self._with_total / total if total else np.full_like(self.shares, 1 / len(self.shares))
        )

    def _removed(self, with_total: Vector, corrected: Vector) -> Vector:
        """Return what `summing_to_one` takes off variances of sums, from those of T and c."""
        return np.asarray(corrected * (2 * with_total - corrected * self._with_total.sum()))

    def of_shares(self) -> Vector:
        """Return the variance of each share, shape (domain_size,)."""
        removed = self._removed(self._with_total, self.correction)
        return np.maximum(self._single - removed, 0.0)

    @cached_property
    def slope(self) -> float:
        """Return the variance of the first share if all users have it, minus that if none has."""
        all_users = np.eye(1, self.mechanism.domain_size)[0]
        others = (1 - all_users) / (len(all_users) - 1)
        at_ends = [self.mechanism.variance(each, self.mixture)[0] for each in (all_users, others)]
        return float(at_ends[0] - at_ends[1])

    def observed(self, variances: Vector) -> Vector:
        """Return variances of sums at observed shares, with what few reports may not show."""
        return variances + np.minimum(variances, self.mechanism.unseen(self.mixture))

    def left(self) -> Vector:
        """Return the part of each variance that is left where shares sum to 1, 0 .. 1."""
        removed = self._removed(self._with_total, self.correction)
        parts = np.divide(removed, self._single, out=np.zeros_like(removed), where=removed > 0)
        return np.asarray(np.clip(1 - parts, 0.0, 1.0))

    @cached_property
    def _single(self) -> Vector:
        return self.mechanism.variance(self.shares, self.mixture)

    def with_group_totals(self) -> Vector:
        """
        Return each share's covariance with the sum of its group's shares, shape (domain_size,).

        Cost for each group: two transforms for hashed reports, else a few passes over the items.
        """
        c, total, size = self.correction, self._with_total, len(self.shares) // self.groups
        of_c, of_total = (
            np.repeat(each.reshape(self.groups, -1).sum(axis=1), size) for each in (c, total)
        )
        found: Vector = self._debiased_with_groups - c * of_total
        found -= (total - c * total.sum()) * of_c
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
        mixture = self.mixture
        if self._linear is None:
            return self.mechanism.covariances_with(weights, self.shares, mixture)
        maps, cells = self._linear
        n, kept = mixture.n_real, mixture.keep_probability
        square = maps.gather(cells * maps.scatter(weights))
        means = self.shares * (maps.base @ weights + maps.gain * weights)
        users = n * kept**2 * (maps.base * means.sum() + maps.gain * means)
        dummies = mixture.n_dummies * maps.dummy * (maps.dummy @ weights)
        total: Vector = square - users - dummies + mixture.item_variance * self._apart(weights)
        return total / (n * kept * maps.gain) ** 2

    def _debiased_variance(self, weights: Vector) -> float:
        """Return the variance of a weighted sum before `summing_to_one`: one transform."""
        if self._linear is None:
            return float(weights @ self._debiased_with(weights))
        maps, cells = self._linear
        n, kept = self.mixture.n_real, self.mixture.keep_probability
        square = cells @ maps.scatter(weights) ** 2
        users = n * kept**2 * self.shares @ (maps.base @ weights + maps.gain * weights) ** 2
        dummies = self.mixture.n_dummies * (maps.dummy @ weights) ** 2
        named = self.mixture.item_variance * (weights @ self._apart(weights))
        return float((square - users - dummies + named) / (n * kept * maps.gain) ** 2)

    def _apart(self, weights: Vector) -> Vector:
        """Return what is left of weights on dummies that name items, if their total is known."""
        size = len(weights)
        known = self.mixture.total_is_known
        return (weights - weights.sum() / size) * size / (size - 1) if known else weights

    def of_sums(self, weights: Iterable[Vector]) -> Vector:
        """
        Return the variances of weighted sums of shares, each given by (domain_size,) weights.

        Cost: a transform for each sum of hashed reports, else a few passes over the items.
        """
        found = [
            self._debiased_variance(each)
            - float(self._removed(self._with_total @ each, self.correction @ each))
            for each in weights
        ]
        return np.maximum(np.array(found, dtype=np.float64), 0.0)

    def of_prefixes(self) -> Vector:
        """
        Return the variance of the sum of shares up to and including each item of its group.

        For hashed reports it is interpolated between exact variances of the first and the last
        prefix of each group and, of few groups, 64 to 256 others in all. Standard errors are then
        exact to some 5 %. Otherwise it is exact. Shape (domain_size,). Cost: a transform for each
        of these prefixes.
        """
        sums = (
            np.cumsum(each.reshape(self.groups, -1), axis=1).ravel()
            for each in (self._with_total, self.correction)
        )
        return np.maximum(self._debiased_prefixes() - self._removed(*sums), 0.0)

    def _debiased_prefixes(self) -> Vector:
        """
        Return variances of prefixes before `summing_to_one`, by a model of covariances.

        By the model, items i and j of a group have the covariance a_i + a_j + b, which follows from
        each one's covariance with its group's total. It is exact for randomized response. Of hashed
        reports, what it leaves of exact variances is interpolated. Derived here.
        """
        groups = self.groups
        known = self.mechanism.variances_of_prefixes(self.shares, self.mixture, groups)
        if known is not None:
            return known
        single = self._single.reshape(groups, -1)
        with_group, size = self._debiased_with_groups.reshape(groups, -1), single.shape[1]
        others, items = with_group - single, np.arange(1.0, size + 1)
        pairs = items * (items - 1) / max(1, size - 1)
        within = 2 * (items - 1) * np.cumsum(others, axis=1)
        within -= pairs * others.sum(axis=1, keepdims=True)
        model: Vector = np.cumsum(single, axis=1) + within / max(1, size - 2)
        model[:, -1] = with_group.sum(axis=1)  # also of two items, where the formula is 0 / 0
        if self._linear is None or self._linear[0].exact_prefixes:
            return model.ravel()
        n_cells = len(self._linear[1])
        number = min(_MOST_PREFIXES, max(_FEWEST_PREFIXES, _MOST_CELLS // n_cells)) // groups
        places = np.unique(np.linspace(0, size - 1, max(2, min(number, size))).astype(np.int64))
        found, every = [], np.arange(groups * size)
        for group, total in enumerate(with_group.sum(axis=1)):
            sums = [single[group, 0], *[total] * (size > 1)]
            for end in group * size + places[1:-1]:
                weights = ((group * size <= every) & (every <= end)).astype(np.float64)
                sums.insert(-1, self._debiased_variance(weights))
            left = np.interp(np.arange(size), places, sums - model[group, places])
            found.append(model[group] + left)
        return np.concatenate(found)

    @cached_property
    def _linear(self) -> tuple[Linear, Vector] | None:
        """Return the estimator's maps, if any, and the expected number of reports in each cell."""
        own, n_dummies = self.mixture.n_real * self.mixture.keep_probability, self.mixture.n_dummies
        maps = self.mechanism.linear(own / (own + n_dummies))
        return maps and (maps, (own + n_dummies) * maps.channel.forward(self.shares))
