"""Quantiles, ranges and shares within a group, with confidence intervals, from a histogram."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.optimize import brentq

from shuffledp.analyzer.finalize import mixture_of_result
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.covariance import ShareCovariance
from shuffledp.common.messages import result
from shuffledp.common.task.task import Task


class Estimated(NamedTuple):
    """An estimate and the ends of its interval; numbers or arrays of one shape."""

    value: Vector
    low: Vector
    high: Vector


def root(gap: Vector, edges: Vector) -> float:
    """
    Return the number at which a gap that is linear between edges, and may not ascend, crosses 0.

    It is replaced by the closest ascending function in the maximum norm.
    """
    rising = np.maximum.accumulate(gap) + np.minimum.accumulate(gap[::-1])[::-1]
    last, first = np.interp(0.0, rising, edges), np.interp(0.0, -rising[::-1], edges[::-1])
    return float((first + last) / 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Distribution:
    """
    The distribution of values among all users, or among the users of one group of a breakdown.

    Numbers are taken as spread evenly within their bucket: cumulative shares are linear between
    edges. Shares are debiased, and corrected to sum to 1, which improves sums of many. Variances
    are those of the refined shares; some are interpolated: see `ShareCovariance.of_prefixes`.
    """

    covariance: ShareCovariance
    items: slice
    """The items of the group."""
    shares: Vector
    """Shares of all users, shape (values,)."""
    variances: Vector
    """Variance of each share."""
    prefix_variances: Vector
    """Variance of the sum of shares up to and including each value; empty like `edges`."""
    with_total: Vector
    """Covariance of each share with the group's total; 0 if there are no groups."""
    half_width: float
    """Half-width of an interval in standard errors."""
    simultaneous_half_width: float
    """The same for intervals that hold for all groups at once."""
    edges: Vector
    """Edges of the buckets, shape (values + 1,); empty if values are not ordered."""
    clipped: bool = False
    """Whether the first and the last bucket also hold numbers outside the edges."""

    @classmethod
    def of_groups(cls, estimate: result.Histogram, batch: result.Result, task: Task) -> list[Self]:
        """
        Return the distribution of each group of a task's result; of all users without a breakdown.

        Sums of many shares are normal; the half-width for clusters is used where it is larger.
        """
        refined = ShareCovariance.of(task, estimate.refined, mixture_of_result(task, batch))
        shares = refined.summing_to_one(estimate.frequencies)
        covariance = refined.at(shares)
        variances = covariance.of_shares()
        prefixes = covariance.observed(covariance.of_prefixes()) if task.edges else np.zeros(0)
        with_totals = covariance.with_group_totals()
        half_width, simultaneous_half_width = (
            max(estimate.half_width(confidence, share), result.interval_half_width(confidence))
            for confidence, share in (
                (result.CONFIDENCE, 0.5),
                (result.simultaneous_confidence(result.CONFIDENCE, task.groups), 0.0),
            )
        )
        size = task.domain_size // task.groups
        return [
            cls(
                covariance=covariance,
                items=items,
                shares=shares[items],
                variances=variances[items],
                prefix_variances=prefixes[items],
                with_total=with_totals[items],
                half_width=half_width,
                simultaneous_half_width=simultaneous_half_width,
                edges=task.edges.edges if task.edges else np.zeros(0),
                clipped=task.edges is not None and task.edges.outside == "clip",
            )
            for items in (slice(end - size, end) for end in range(size, task.domain_size + 1, size))
        ]

    @property
    def total(self) -> float:
        """The group's share of all users; 1.0 if there are no groups."""
        return float(self.shares.sum())

    @property
    def total_variance(self) -> float:
        """Variance of the group's share of all users; 0 if there are no groups."""
        return max(0.0, float(self.with_total.sum()))

    def slopes(self, sizes: Vector | int) -> Vector:
        """
        Return how variances of sums of so many shares change per share that the sum gains.

        Since all shares sum to 1, that of all others changes as much downwards: the slope falls
        evenly from that of one share to its opposite, for randomized response exactly. The sum of
        no share or of all does not vary. Derived in docs/theory/estimation.md.
        """
        size = len(self.covariance.shares)
        falling = 1 - 2 * np.maximum(sizes - 1, 0) / max(1, size - 2)
        part = np.minimum(np.minimum(sizes, size - sizes), 1.0)
        return self.covariance.slope * part * falling

    @staticmethod
    def totals(groups: Sequence["Distribution"]) -> Estimated:
        """Return the share of all users of each group."""
        square, totals = groups[0].half_width ** 2, np.array([each.total for each in groups])
        variances = square * np.array([each.total_variance for each in groups])
        middle = totals + square * groups[0].slopes(len(groups[0].shares)) / 2
        reach = np.sqrt(variances + (middle - totals) ** 2)
        return Estimated(totals, middle - reach, middle + reach)

    @property
    def is_known(self) -> bool:
        """Whether the group's share is above 0, with 95 % confidence for all groups at once."""
        return bool(self.total > self.simultaneous_half_width * self.total_variance**0.5)

    @property
    def locates_median(self) -> bool:
        """Whether values are ordered, and the median's interval excludes one of the end buckets."""
        if not len(self.edges) or not self.is_known:
            return False
        _, low, high = self.quantiles([0.5])
        return bool(low[0] >= self.edges[1] or high[0] <= self.edges[-2])

    @property
    def within(self) -> Estimated:
        """The share of the group's users with each value."""
        return self._ratio(self.shares, self.variances, self.with_total, np.ones(len(self.shares)))

    @property
    def cumulative(self) -> Estimated:
        """The share of the group's users with each value or a smaller one."""
        sums, with_total = np.cumsum(self.shares), np.cumsum(self.with_total)
        return self._ratio(sums, self.prefix_variances, with_total, np.arange(1.0, len(sums) + 1))

    def ranges(self, ranges: Sequence[tuple[float, float]]) -> Estimated:
        """Return the share of the group's users with a number in each range."""
        bounds, edges = np.array(ranges, dtype=np.float64).reshape(-1, 2, 1), self.edges
        inside = np.minimum(bounds[:, 1], edges[1:]) - np.maximum(bounds[:, 0], edges[:-1])
        weights = np.clip(inside / np.diff(edges), 0.0, 1.0)
        whole = np.zeros((len(weights), len(self.covariance.shares)))
        whole[:, self.items] = weights
        variances = self.covariance.observed(self.covariance.of_sums(whole))
        with_total, sizes = weights @ self.with_total, weights.sum(axis=1)
        return self._ratio(weights @ self.shares, variances, with_total, sizes)

    def _ratio(
        self, part: Vector, variances: Vector, with_total: Vector, sizes: Vector
    ) -> Estimated:
        """
        Return parts of all users as shares of the group's, with Fieller's intervals [Fie54].

        They hold the ratios r for which part - r·total is within its half-width of 0, with the
        variance that the part has there: a quadratic in r.
        """
        square, slopes = self.half_width**2, self.slopes(sizes)
        lead = self.total**2 - square * self.total_variance
        if lead <= 0:
            unknown = np.full_like(part, np.inf)
            return Estimated(part / self.total if self.total else unknown, -unknown, unknown)
        middle = ((part + square * slopes / 2) * self.total - square * with_total) / lead
        rest = (part**2 - square * (variances - slopes * part)) / lead
        reach = np.sqrt(np.maximum(0.0, middle**2 - rest))
        return Estimated(part / self.total, middle - reach, middle + reach)

    def quantiles(self, shares: Sequence[float]) -> Estimated:
        """
        Return the number below which each share of the group's users lies.

        The interval is the hull of all numbers x for which F̂(x) is within its half-width of the
        share, with the variance that F̂ has if that is the true one. F̂ - share is linear within a
        bucket, and its standard error convex, so the hull ends where one of its bounds at the edges
        changes its sign. Where a task clips numbers, nothing is known within the first and the last
        bucket but their inner edges: a number there is given
        by this edge, and an end beyond it is infinite.
        """
        sums, variances, covariances = (
            np.append(0.0, each)
            for each in (np.cumsum(self.shares), self.prefix_variances, np.cumsum(self.with_total))
        )
        # A gap changes as users move within the group, from the weight -share to 1 - share.
        others = len(self.covariance.shares) - len(self.shares)
        of_total = 2 * self.covariance.slope * others / max(1, len(self.covariance.shares) - 2)
        own = self.slopes(np.arange(len(sums), dtype=np.float64))
        own[-1] = of_total
        found = []
        for share in shares:
            gap, slopes = sums - share * self.total, own - share * of_total
            square = variances + share**2 * self.total_variance - 2 * share * covariances
            reach = self.half_width * np.sqrt(np.maximum(square - slopes * gap, 0.0))
            above, below = np.flatnonzero(gap + reach >= 0), np.flatnonzero(gap - reach <= 0)
            low, high = self.edges[[0, -1]].tolist()
            if above[0] > 0:
                low = self._zero(int(above[0]) - 1, gap, square, slopes, 1)
            if below[-1] < len(gap) - 1:
                high = self._zero(int(below[-1]), gap, square, slopes, -1)
            number = root(gap, self.edges)
            if self.clipped:
                first, last = self.edges[[1, -2]].tolist()
                number = min(max(number, first), last)
                low = -np.inf if low < first else min(low, last)
                high = np.inf if high > last else max(high, first)
            found.append((number, low, high))
        return Estimated(*np.array(found).reshape(-1, 3).T)

    def _zero(self, bucket: int, gap: Vector, square: Vector, slopes: Vector, sign: int) -> float:
        """
        Return the number in a bucket where the gap, plus or minus its half-width, is 0.

        At a part λ of the bucket the gap has the variance (1-λ)s + λs' - λ(1-λ)v, for the variances
        s and s' at the bucket's edges, and v of its share; there the gap is 0 in truth.
        """
        gaps, squares, slope = (each[bucket : bucket + 2] for each in (gap, square, slopes))

        def bound(part: float) -> float:
            weights = np.array([1 - part, part])
            variance = weights @ squares - part * (1 - part) * self.variances[bucket]
            variance -= (weights @ slope) * (weights @ gaps)
            return float(weights @ gaps + sign * self.half_width * np.sqrt(max(0.0, variance)))

        low, high = self.edges[bucket : bucket + 2]
        return float(low + brentq(bound, 0.0, 1.0) * (high - low))
