"""
A tree of histograms over ordered buckets: the protocol `hierarchy`.

A user reports the bucket of the value at every level of a tree, without noise; uniform dummies of
each level hide the nodes. The levels are separate histograms, whose privacy losses compose. A range
of buckets is then a sum of few nodes instead of many buckets.

The estimate is the least-squares one that agrees with all levels and with the number of users
[HRMS10]. Upwards, a node's own count is averaged with the sum of its children, weighted by their
variances; downwards, what a node's final count differs from the sum of its children is split among
them by their variances. A node's final count and the deviations of its children from their shares
of it are uncorrelated, so variances of sums add up along the tree.

With an expected d dummies of each node, a count has the variance d. The number of a level's dummies
is known, which takes a share 1/(level's nodes) off the variance of a node and nothing off the
variances of a tree's estimates, where it moves all siblings alike.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms import base
from shuffledp.common.mechanisms.base import Counts, Reports, Vector
from shuffledp.common.mechanisms.count_law import interval_table
from shuffledp.common.mechanisms.views import View, ViewMechanism
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.messages.result import IntervalTable
from shuffledp.common.messages.submission import PLAIN_REPORT
from shuffledp.common.task.specs import MechanismSpec, hierarchy_sizes
from shuffledp.common.task.task import Task


@dataclass(frozen=True)
class Hierarchy(ViewMechanism, base.Mechanism):
    """True nodes of each level: the views are the levels, from the coarsest to the buckets."""

    fan_out: int
    groups: int
    """Number of trees, one for each group of a breakdown."""

    @classmethod
    def specify(cls, request: base.MechanismRequest) -> MechanismSpec:
        """Return the fan-out as buckets and the levels as digits; there is no local noise."""
        size = request.domain_size // request.groups
        if request.buckets < 2:  # noqa: PLR2004  # a node has at least two children
            raise TaskError(f"buckets, the fan-out, is {request.buckets}; it must be at least 2")
        fan_out = min(request.buckets, size)
        levels = len(hierarchy_sizes(size, fan_out))
        weights = ResponseWeights.for_epsilon(request.local_epsilon)
        return request.spec(weights, buckets=fan_out, dtype=PLAIN_REPORT, digits=levels)

    @classmethod
    def of(cls, task: Task) -> Self:
        views = View.of_task(task)
        return cls(views=views, fan_out=task.mechanism.fan_out, groups=task.groups)

    @property
    def domain_size(self) -> int:  # type: ignore[override]  # a field elsewhere
        """Number of buckets of all groups."""
        return self.sizes[-1]

    @cached_property
    def _parents(self) -> tuple[NDArray[np.int64], ...]:
        """Each level's parents in the level before; all 0, the root, for the first level."""
        found = [np.zeros(self.sizes[0], dtype=np.int64)]
        for above, size in zip(self.sizes, self.sizes[1:], strict=False):
            group, node = np.divmod(np.arange(size), size // self.groups)
            found.append(group * (above // self.groups) + node // self.fan_out)
        return tuple(found)

    def _paths(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the node of each level that holds an item. (n,) -> (levels, n)."""
        nodes: list[NDArray[np.int64]] = []
        group, node = np.divmod(items, self.domain_size // self.groups)
        for size in reversed(self.sizes):
            nodes.insert(0, group * (size // self.groups) + node)
            node = node // self.fan_out
        return np.array(nodes)

    def encode(self, values: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        return self._paths(base.check_values(values, self.domain_size)).T

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        return np.isin(reports["item"], self._paths(np.array([item]))[:, 0] + self.offsets[:-1])

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """Count the nodes of `users`, and draw all their dummies; n_dummies is 0."""
        paths = self._paths(np.arange(self.domain_size))
        own = [
            np.bincount(nodes, weights=users, minlength=size).astype(np.int64)
            for nodes, size in zip(paths, self.sizes, strict=True)
        ]
        return np.concatenate(own) + self.sample_dummies(int(users.sum()), rng)

    # --- estimation: run by the analyzer ----------------------------------------------------------

    def _adding(self, mixture: base.Mixture) -> float:
        """
        Return how many users are expected to add as many dummies as arrived, of all levels.

        A mixture does not have their number by level.
        """
        expected = sum(view.dummies.expected_per_user for view in self.views)
        return max(1.0, mixture.n_dummies) / expected if expected else mixture.n_real

    def _node_variances(self, n_users: float) -> list[float]:
        """Return the variance of each level's counts."""
        return [view.item_variance(n_users) for view in self.views]

    def _sum_children(self, level: int, figures: Vector) -> Vector:
        """Sum the figures of a level's nodes over each parent."""
        size = self.sizes[level - 1] if level else 1
        sums = np.bincount(self._parents[level], weights=figures, minlength=size)
        return sums.astype(np.float64)

    def _shares_of_parents(self, level: int, figures: Vector) -> Vector:
        """Return each node's share of the sum of its own and its siblings' figures."""
        return figures / self._sum_children(level, figures)[self._parents[level]]

    def _combined_variances(self, n_users: float) -> list[Vector]:
        """Return, by level, the variance of a node's average of its own count and its children."""
        own = self._node_variances(n_users)
        combined = [np.full(self.sizes[-1], own[-1])]
        for level in range(len(self.sizes) - 1, 0, -1):
            below = self._sum_children(level, combined[0])
            combined.insert(0, 1 / (1 / own[level - 1] + 1 / below))
        return combined

    def debias(self, cells: Counts, mixture: base.Mixture) -> Vector:
        own = self._node_variances(mixture.n_real)
        combined = self._combined_variances(mixture.n_real)
        levels = self.by_view(cells)
        counts = [each - (each.sum() - mixture.n_real) / len(each) for each in levels]
        for level in range(len(self.sizes) - 1, 0, -1):
            weight = combined[level - 1] / own[level - 1]
            children = self._sum_children(level, counts[level])
            counts[level - 1] = weight * counts[level - 1] + (1 - weight) * children
        final: Vector = np.array([mixture.n_real])
        for level, parents in enumerate(self._parents):
            missing = final - self._sum_children(level, counts[level])
            share = self._shares_of_parents(level, combined[level])
            final = counts[level] + share * missing[parents]
        return final / mixture.n_real

    def variance(self, shares: Vector, mixture: base.Mixture) -> Vector:
        """Return the variance of each share; it does not depend on the true shares."""
        combined = self._combined_variances(self._adding(mixture))
        final: Vector = np.zeros(1)
        for level, parents in enumerate(self._parents):
            each = combined[level]
            share = self._shares_of_parents(level, each)
            final = share**2 * final[parents] + each * (1 - share)
        return final / mixture.n_real**2

    def interval_table(self, mixture: base.Mixture) -> IntervalTable:
        """
        Return intervals by the exact distribution of a count of the last level.

        An estimate averages counts of several levels and is nearer to normal, so intervals are a
        little wide.
        """
        law = self.views[-1].count_law(self._adding(mixture))
        return interval_table(mixture.n_real, 1.0, 0.0, law)

    def covariances_with(self, weights: Vector, shares: Vector, mixture: base.Mixture) -> Vector:
        """
        Return each share's covariance with a weighted sum, for any shares; shape (domain_size,).

        A node's children with weights w and variances s give it the weight Σ ws / Σ s. A child's
        covariance is its share of its parent's, plus s times the excess of its weight.
        """
        combined, nodes = self._combined_variances(self._adding(mixture)), [weights]
        for level in range(len(self.sizes) - 1, -1, -1):
            each = combined[level]
            sums = self._sum_children(level, nodes[0] * each)
            nodes.insert(0, sums / self._sum_children(level, each))
        final: Vector = np.zeros(1)
        for level, parents in enumerate(self._parents):
            each = combined[level]
            share = self._shares_of_parents(level, each)
            final = share * final[parents] + each * (nodes[level + 1] - nodes[level][parents])
        return final / mixture.n_real**2

    def linear(self, real_share: float) -> None:
        """Return None: levels are separate histograms."""

    def variances_of_prefixes(self, shares: Vector, mixture: base.Mixture, groups: int) -> Vector:
        return self.prefix_variances(mixture.n_real, self._adding(mixture))

    def prefix_variances(self, n_users: float, adding: float | None = None) -> Vector:
        """
        Return the variance of the sum of shares up to and including each item of its group.

        With the dummies that so many users are expected to add: by default all.

        At each level a node on the item's path has a weight, siblings before it the weight 1, and
        siblings after it 0; variances add up as in `covariances_with`. Cost: a pass for each level.
        """
        combined, size = self._combined_variances(adding or n_users), self.domain_size
        weight, total, paths = np.ones(size), np.zeros(size), self._paths(np.arange(size))
        for level in range(len(self.sizes) - 1, -1, -1):
            each, node, parents = combined[level], paths[level], self._parents[level]
            of_group = self.sizes[level] // self.groups
            # The second differs at the first level, where all groups have the same parent.
            first = np.maximum(np.searchsorted(parents, parents[node]), node // of_group * of_group)
            sums = np.concatenate([[0.0], np.cumsum(each)])
            before, siblings = sums[node] - sums[first], self._sum_children(level, each)
            reached = before + weight * each[node]
            whole = siblings[parents[node]]
            total += before + weight**2 * each[node] - reached**2 / whole
            weight = reached / whole
        return np.maximum(total, 0.0) / n_users**2
