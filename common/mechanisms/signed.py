"""
True items among clusters of positive and negative reports: the protocol `signed`.

A report is the number v for a positive report of item v, and domain_size + v for a negative one.
With a_v positive and b_v negative reports of item v, and the negative weight w,

    y_v = a_v - w·b_v,    x_v = y_v - (Σ y_u - n) / d

estimates the number of users who hold v. It is unbiased whatever share of the users adds clusters,
since their items are uniform, and sums to n. A cluster of i positive and j negative reports adds
(i - w·j)·(1{V = v} - 1/d) with a uniform item V: mean 0, variance (i - w·j)²·(d - 1)/d², for every
item the same. From no paper; derivation: docs/theory/estimation.md.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import ReportError
from common.mechanisms.base import Counts, Mixture, Reports, Vector, check_values
from common.messages.submission import PLAIN_REPORT, plain_reports
from common.task.cluster_spec import ClusterSpec


@dataclass(frozen=True)
class Signed:
    """Reports of true items, and of clusters."""

    domain_size: int
    clusters: ClusterSpec

    @property
    def local_epsilon(self) -> float:
        """Infinite: a user's own report is true."""
        return math.inf

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Return whether no local ε is promised. Run by the user agent."""
        return local_epsilon == math.inf

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """One unsigned 32-bit number."""
        return PLAIN_REPORT

    @property
    def reduction(self) -> None:
        """None: `cluster_noise` bounds δ, not the formula for uniform dummies."""
        return None

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        """Return a positive report of each value, without noise. Run by the user agent."""
        del rng
        check_values(values, self.domain_size)
        return plain_reports(values)

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Return which reports name an item, positive or negative. Run by the analyzer."""
        inside: NDArray[np.bool_] = reports["item"] < 2 * self.domain_size
        return inside

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        """Return which reports are positive reports of an item. Run by auditors."""
        named: NDArray[np.bool_] = reports["item"] == item
        return named

    def tally(self, reports: Reports) -> Counts:
        """Count positive, then negative reports by item, shape (2·domain_size,)."""
        if not self.valid(reports).all():
            raise ReportError(f"a report is not below {2 * self.domain_size}")
        return np.bincount(reports["item"].astype(np.int64), minlength=2 * self.domain_size)

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """
        Draw the counts of `users`, shape (domain_size,), and all their clusters.

        Clusters are drawn by type: the trials of all users are a multinomial number of each, and
        items are uniform. There are no other dummies: n_dummies is 0.
        """
        del n_dummies
        types = list(self.clusters.chances())
        chances = [chance for _, _, chance in types]
        trials = int(users.sum()) * self.clusters.trials
        *numbers, _ = rng.multinomial(trials, [*chances, max(0.0, 1 - math.fsum(chances))])
        cells = np.concatenate([users, np.zeros_like(users)])
        uniform = np.full(self.domain_size, 1 / self.domain_size)
        for (positive, negative, _), number in zip(types, numbers, strict=True):
            items = rng.multinomial(number, uniform)
            cells += np.concatenate([positive * items, negative * items])
        return cells

    def debias(self, cells: Counts, mixture: Mixture) -> Vector:
        """Estimate each item's share without bias, shape (domain_size,). Run by the analyzer."""
        positive, negative = np.split(cells, 2)
        counts = positive - self.clusters.negative_weight * negative
        counts = counts - (counts.sum() - mixture.n_real) / self.domain_size
        return np.asarray(counts / mixture.n_real, dtype=np.float64)

    def variance(self, shares: Vector, mixture: Mixture) -> Vector:
        """Return the variance of each share: the same for all items, whatever the shares."""
        d = self.domain_size
        return np.full(shares.shape, self.clusters.noise * (d - 1) / d**2 / mixture.n_real)
