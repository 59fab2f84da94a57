"""
Items among clusters of positive and negative reports: the protocol `signed`.

A report is the number v for a positive report of item v, and domain_size + v for a negative one.
Users' own reports are positive, and true or randomized by GRR. With a_v positive and b_v negative
reports of item v, the negative weight w, and n users,

    y_v = a_v - w·b_v,    y_v - (Σ y_u - n) / d

counts the users' own reports of v without bias, whatever share of the users adds clusters, since
items of clusters are uniform. A cluster of i positive and j negative reports of item V adds
(i - w·j)·(1{V = v} - 1/d): mean 0, variance (i - w·j)²·(d - 1)/d², for every item the same. From no
paper; derivation: docs/theory/estimation.md.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self, cast

import numpy as np

from shuffledp.common.mechanisms.base import Counts, Mixture, Reports, Vector, null_reports
from shuffledp.common.mechanisms.count_law import Draws, interval_table
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.messages.result import IntervalTable
from shuffledp.common.messages.submission import PLAIN_REPORT
from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.common.task.task import Task

_UNEXPLAINED: Final = 5.0
"""Standard deviations from the expected total that are a reason for a warning."""


def influence_on(task: Task) -> tuple[float, float] | None:
    """Return `Signed.influence` of a task with clusters, and None for other tasks."""
    return Signed.of(task).influence(1) if isinstance(task.dummies, ClusterDummies) else None


@dataclass(frozen=True)
class Signed(Grr):
    """Randomized response or true items, among clusters; cells are positive, then negative."""

    PLACE: ClassVar[str] = "a report"

    clusters: ClusterDummies

    @classmethod
    def of(cls, task: Task) -> Self:
        clusters = cast("ClusterDummies", task.dummies)
        return cls(task.domain_size, ResponseWeights.of(task.item_mechanism), clusters)

    @property
    def places(self) -> int:
        """Number of items, positive, then negative."""
        return 2 * self.domain_size

    def cluster_reports(self, numbers: Counts, size: int) -> Reports:
        """Return the reports of one user's clusters, and null reports that fill up to `size`."""
        reports = null_reports(size, PLAIN_REPORT).copy()
        reports["item"][: len(numbers)] = numbers
        return reports

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """
        Draw the counts of `users`, shape (domain_size,), and all their clusters.

        Clusters are drawn by type: the trials of all users are a multinomial number of each, and
        items are uniform. There are no uniform dummies: n_dummies is 0.
        """
        types = list(self.clusters.chances())
        chances = [chance for _, _, chance in types]
        trials = int(users.sum()) * self.clusters.trials
        *numbers, _ = rng.multinomial(trials, [*chances, max(0.0, 1 - math.fsum(chances))])
        own = super().sample_cells(users, n_dummies, rng)
        cells = np.concatenate([own, np.zeros_like(own)])
        uniform = np.full(self.domain_size, 1 / self.domain_size)
        for (positive, negative, _), number in zip(types, numbers, strict=True):
            items = rng.multinomial(number, uniform)
            cells += np.concatenate([positive * items, negative * items])
        return cells

    def debias(self, cells: Counts, mixture: Mixture) -> Vector:
        positive, negative = np.split(cells, 2)
        counts = positive - self.clusters.negative_weight * negative
        own: Any = counts - (counts.sum() - mixture.n_real) / self.domain_size  # fractions
        return super().debias(own, replace(mixture, n_dummies=0.0))

    def variance(self, shares: Vector, mixture: Mixture) -> Vector:
        return super().variance(shares, self.mixture_with_clusters(mixture))

    def mixture_with_clusters(self, mixture: Mixture) -> Mixture:
        """Return a batch's composition, with the clusters as dummies that name items."""
        noise = self.clusters.item_variance(mixture.n_real, self.domain_size)
        return replace(mixture, n_dummies=0.0, item_variance=noise)

    def interval_table(self, mixture: Mixture) -> IntervalTable:
        """
        Return intervals by the exact distribution of y_v, which each trial that names v moves.

        It leaves out what the sum over all items gives up, 1/d of the variance, and which is nearer
        to normal: so intervals are a little wide.
        """
        types = list(self.clusters.chances())
        added, place = np.unique(
            [i - self.clusters.negative_weight * j for i, j, _ in types], return_inverse=True
        )
        chances = np.bincount(place, weights=[chance for _, _, chance in types])
        trials = round(mixture.n_real) * self.clusters.trials
        clusters = Draws(trials, added, chances / self.domain_size)
        return interval_table(mixture.n_real, self.p, self.q, (clusters,))

    def influence(self, most: int) -> tuple[float, float]:
        """
        Return the most users that one submission of clusters adds to an item, or takes.

        Its rooms bound it, whatever `most` is.
        """
        up, down = self.clusters.influence
        return up / (self.p - self.q), down / (self.p - self.q)

    def unexplained(self, cells: Counts, n_users: int) -> tuple[str, ...]:
        found = []
        trials = n_users * self.clusters.trials
        for sign, name, own in ((0, "positive", n_users), (1, "negative", 0)):
            of_sign = [(each[sign], each[2]) for each in self.clusters.chances()]
            mean = math.fsum(chance * number for number, chance in of_sign)
            spread = math.fsum(chance * number**2 for number, chance in of_sign) - mean**2
            total = int(np.split(cells, 2)[sign].sum())
            expected, most = own + trials * mean, _UNEXPLAINED * math.sqrt(trials * spread)
            if abs(total - expected) > most:
                found.append(
                    f"the batch has {total:,} {name} reports; {n_users:,} honest users send "
                    f"{expected:,.0f}, give or take {most:,.0f}. Some users send clusters that "
                    "the task does not allow, or send none"
                )
        return tuple(found)

    def channel(self, real_share: float) -> None:  # type: ignore[override]  # GRR has one
        """None: a user's own report and clusters add up, so EM would gain nothing."""
