"""
Subset selection [YB18]: report k items. A set with the user's item has weight `true`, else `other`.

An example to import, of a mechanism that the project does not offer: see
docs/researchers/add-a-mechanism.md.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import ReportError, TaskError
from shuffledp.common.mechanisms.base import (
    Counts,
    MechanismRequest,
    Mixture,
    Reports,
    Vector,
    check_answers,
    check_values,
)
from shuffledp.common.mechanisms.bits import chunks
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.mechanisms.sampling import exact_coins
from shuffledp.common.mechanisms.support import SupportCounting
from shuffledp.common.mechanisms.weights import OddsOfWeights, ResponseWeights
from shuffledp.common.task.specs import MAX_REPORT_BYTES, MAX_WEIGHT_SUM, MechanismSpec
from shuffledp.common.task.task import Task


@dataclass(frozen=True)
class SubsetSelection(OddsOfWeights, SupportCounting):
    """
    Report k ≈ d / (e^ε + 1) items in ascending order. A report supports the items it names.

    The sum of all weights is the same for every item, so the odds bound the privacy loss.
    """

    FACTORS: ClassVar[int] = 1

    domain_size: int
    weights: ResponseWeights

    def __post_init__(self) -> None:
        if self.report_dtype.itemsize > MAX_REPORT_BYTES:
            raise TaskError(
                f"a report of {self.size} items has {self.report_dtype.itemsize} bytes; "
                f"it must have at most {MAX_REPORT_BYTES}"
            )
        if self._total > MAX_WEIGHT_SUM:
            raise TaskError(f"the sum of the weights is {self._total}; it must stay below 2^63")

    @classmethod
    def specify(cls, request: MechanismRequest) -> MechanismSpec:
        """Choose the integer weights, which determine k; buckets is 2: an item is named or not."""
        mechanism = cls(request.domain_size, ResponseWeights.for_epsilon(request.local_epsilon))
        return request.spec(mechanism.weights, buckets=2, dtype=mechanism.report_dtype)

    @classmethod
    def of(cls, task: Task) -> Self:
        """Build the mechanism of a task."""
        check_answers(task.item_mechanism, 2)
        return cls(task.domain_size, ResponseWeights.of(task.item_mechanism))

    # --8<-- [start:methods]
    @cached_property
    def size(self) -> int:
        """Number of items in a report: k = d·other / (true + other), rounded, at least 1."""
        total = self.weights.true + self.weights.other
        return max(1, (2 * self.domain_size * self.weights.other + total) // (2 * total))

    @cached_property
    def _total(self) -> int:
        """W, the sum of all sets' weights in units of C(d, k) / d."""
        return self.size * self.weights.true + (self.domain_size - self.size) * self.weights.other

    @property
    def p(self) -> float:
        """Probability that the user's item is named: k·true / W."""
        return self.size * self.weights.true / self._total

    @property
    def q(self) -> float:
        """Probability that another item is named: (k-1)/(d-1) if the user's is, else k/(d-1)."""
        k, d = self.size, self.domain_size
        named = (k - 1) * self.weights.true + (d - k) * self.weights.other
        return k * named / (self._total * (d - 1))

    @property
    def q_dummy(self) -> float:
        """Probability that a dummy, a uniform set of k items, names a given item."""
        return self.size / self.domain_size

    @property
    def reduction(self) -> MatchCountReduction:
        """Match count with γ = d·other / W, l = d/k and collision (k-1)/(d-1)."""
        k, d, true, other = self.size, self.domain_size, self.weights.true, self.weights.other
        return MatchCountReduction(
            answers=d / k,
            local_epsilon=self.local_epsilon,
            blanket=d * other / self._total,
            signal=k * (true - other) / self._total,
            collision=(k - 1) / (d - 1),
            third_value="none",
        )

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """The k items, unsigned 32-bit."""
        return np.dtype([("items", "<u4", (self.size,))])

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        """Draw a set of k items for each value. Run by the user agent."""
        values = check_values(values, self.domain_size)
        reports = np.empty(len(values), dtype=self.report_dtype)
        for part in chunks(len(values), self.domain_size):
            own = values[part]
            named = exact_coins(self.size * self.weights.true, self._total, own.shape, rng)
            items = self._uniform(len(own), self.domain_size - 1, rng)
            items += items >= own[:, None]  # k of the other items
            items[named, 0] = own[named]
            reports["items"][part] = np.sort(items, axis=1)
        return reports

    # --8<-- [end:methods]
    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        """Draw `count` uniform sets: the blanket. Run by the user agent."""
        reports = np.empty(count, dtype=self.report_dtype)
        for part in chunks(count, self.domain_size):
            items = self._uniform(len(reports[part]), self.domain_size, rng)
            reports["items"][part] = np.sort(items, axis=1)
        return reports

    def _uniform(self, count: int, among: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw k of the first `among` items, `count` times, in random order; shape (count, k)."""
        rows = np.tile(np.arange(among), (count, 1))
        return rng.permuted(rows, axis=1)[:, : self.size]

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Return which reports name k items in ascending order. Run by the analyzer."""
        items = reports["items"].astype(np.int64)
        ascending = (np.diff(items, axis=1) > 0).all(axis=1)
        valid: NDArray[np.bool_] = ascending & (items[:, -1] < self.domain_size)
        return valid

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        """Return which reports name an item. Run by auditors."""
        named: NDArray[np.bool_] = (reports["items"] == item).any(axis=1)
        return named

    def tally(self, reports: Reports) -> Counts:
        """Count how often each item is named. Run by the analyzer."""
        if not self.valid(reports).all():
            raise ReportError(f"a report does not name {self.size} items in ascending order")
        items = reports["items"].ravel().astype(np.int64)
        return np.bincount(items, minlength=self.domain_size)

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """Draw and count every report, since the items of one report depend on each other."""
        own = self.randomize(np.repeat(np.arange(self.domain_size), users), rng)
        return self.tally(own) + self.tally(self.dummies(n_dummies, rng))

    def support_counts(self, cells: Counts) -> Counts:
        """Return the cells: a report supports the items it names."""
        return cells

    def channel(self, real_share: float) -> None:
        """Return None: there are too many sets to list. Refine by projection."""

    def linear(self, real_share: float) -> None:
        """Return None: covariances follow from pairs of items."""

    def covariances_with(self, weights: Vector, shares: Vector, mixture: Mixture) -> Vector:
        """
        Return each share's covariance with a weighted sum; exact, for shares f of sum 1.

        A user's set names the own item and a given other with probability p(k-1)/(d-1), and two
        others with (k-1)·(p(k-2) + (1-p)k) / ((d-1)(d-2)); a dummy names two with
        k(k-1) / (d(d-1)). So the counts of items i and j have a covariance of base +
        slope·(f_i + f_j).
        """
        k, d, n, kept = self.size, self.domain_size, mixture.n_real, mixture.keep_probability
        p, q = self.p, self.q
        own, others = p * (k - 1) / (d - 1), (k - 1) * (p * (k - 2) + (1 - p) * k) / (d - 1)
        others /= max(1, d - 2)
        base = n * kept * (others - kept * q**2)
        base += mixture.n_dummies * (k * (k - 1) / (d * (d - 1)) - self.q_dummy**2)
        slope = n * kept * (own - others - kept * q * (p - q))
        pairs = (base + slope * shares) * (weights.sum() - weights)
        pairs += slope * (shares @ weights - shares * weights)
        apart: Vector = pairs / (n * kept * (p - q)) ** 2
        return self.variance(shares, mixture) * weights + apart
