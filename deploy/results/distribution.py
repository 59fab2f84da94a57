"""Quantiles, ranges and shares within a group, with confidence intervals, from a histogram."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np

from analyzer.finalize import mixture_of
from common.mechanisms.base import Vector
from common.mechanisms.covariance import ShareCovariance
from common.messages.result import (
    Histogram,
    Result,
    interval_half_width,
    simultaneous_confidence,
)
from common.task.task import Task
from deploy.results.estimate_table import CONFIDENCE

_PARTS: Final = 8
"""Parts of a bucket at whose ends the error of a cumulative share is computed."""


class Estimated(NamedTuple):
    """An estimate and the ends of its interval; numbers or arrays of one shape."""

    value: Vector
    low: Vector
    high: Vector


def root(gap: Vector, edges: Vector) -> float:
    """
    Return the number at which a gap that is linear between edges, and may not ascend, crosses 0.

    It is replaced by the middle of the least and the largest ascending function that touch it.
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
    are exact for the refined shares.
    """

    covariance: ShareCovariance
    items: slice
    """The items of the group."""
    shares: Vector
    """Shares of all users, shape (values,)."""
    variances: Vector
    """Variance of each share."""
    prefix_variances: Vector
    """Variance of the sum of shares up to and including each value."""
    with_total: Vector
    """Covariance of each share with the group's total; 0 if there are no groups."""
    half_width: float
    """Half-width of an interval in standard errors."""
    known_from: float
    """The same for intervals that hold for all groups at once."""
    edges: Vector
    """Edges of the buckets, shape (values + 1,); empty if values are not ordered."""
    clipped: bool = False
    """Whether the first and the last bucket also hold numbers outside the edges."""

    @classmethod
    def of_groups(cls, estimate: Histogram, batch: Result, task: Task) -> list[Self]:
        """
        Return the distribution of each group of a task's result; of all users without a breakdown.

        Sums of many shares are normal; the half-width for clusters is used where it is larger.
        """
        refused = sum(batch.refused.values())
        accepted = batch.n_reports - refused
        own = batch.n_users * task.own_reports * accepted / max(1, batch.n_reports)
        counts = {"counted": min(accepted, batch.n_dummies + round(own)), "refused": refused}
        padding = accepted - counts["counted"]
        mixture = mixture_of(task, batch.n_users, padding=padding, **counts)
        covariance = ShareCovariance.of(task, estimate.refined, mixture)
        shares, variances = covariance.summing_to_one(estimate.frequencies), covariance.of_shares()
        prefixes, size = covariance.of_prefixes(task.groups), task.domain_size // task.groups
        half_width, known_from = (
            max(estimate.half_width(confidence), interval_half_width(confidence))
            for confidence in (CONFIDENCE, simultaneous_confidence(CONFIDENCE, task.groups))
        )
        found = []
        for first in range(0, task.domain_size, size):
            items, member = slice(first, first + size), np.zeros(task.domain_size)
            member[items] = 1.0
            found.append(
                cls(
                    covariance=covariance,
                    items=items,
                    shares=shares[items],
                    variances=variances[items],
                    prefix_variances=prefixes[items],
                    with_total=covariance.with_sum(member)[items],
                    half_width=half_width,
                    known_from=known_from,
                    edges=task.edges.edges if task.edges else np.zeros(0),
                    clipped=task.edges is not None and task.edges.outside == "clip",
                )
            )
        return found

    @property
    def total(self) -> float:
        """The group's share of all users; 1.0 if there are no groups."""
        return float(self.shares.sum())

    @property
    def total_variance(self) -> float:
        """Variance of the group's share of all users; 0 if there are no groups."""
        return float(self.prefix_variances[-1])

    @staticmethod
    def totals(groups: Sequence["Distribution"]) -> Estimated:
        """Return the share of all users of each group."""
        totals = np.array([each.total for each in groups])
        errors = np.sqrt([each.total_variance for each in groups])
        reach = groups[0].half_width * errors
        return Estimated(totals, totals - reach, totals + reach)

    @property
    def is_known(self) -> bool:
        """Whether the group's share is above 0, with 95 % confidence for all groups at once."""
        return bool(self.total > self.known_from * self.total_variance**0.5)

    @property
    def within(self) -> Estimated:
        """The share of the group's users with each value."""
        return self._ratio(self.shares, self.variances, self.with_total)

    @property
    def cumulative(self) -> Estimated:
        """The share of the group's users with each value or a smaller one."""
        return self._ratio(
            np.cumsum(self.shares), self.prefix_variances, np.cumsum(self.with_total)
        )

    def ranges(self, ranges: Sequence[tuple[float, float]]) -> Estimated:
        """Return the share of the group's users with a number in each range."""
        bounds, edges = np.array(ranges, dtype=np.float64).reshape(-1, 2, 1), self.edges
        inside = np.minimum(bounds[:, 1], edges[1:]) - np.maximum(bounds[:, 0], edges[:-1])
        weights = np.clip(inside / np.diff(edges), 0.0, 1.0)
        whole = np.zeros((len(weights), len(self.covariance.shares)))
        whole[:, self.items] = weights
        variances = self.covariance.of_sums(whole)
        return self._ratio(weights @ self.shares, variances, weights @ self.with_total)

    def _ratio(self, part: Vector, variances: Vector, with_total: Vector) -> Estimated:
        """
        Return parts of all users as shares of the group's, with Fieller's intervals.

        They hold the ratios r for which part - r·total is within its half-width of 0.
        """
        square = self.half_width**2
        lead = self.total**2 - square * self.total_variance
        if lead <= 0:
            unknown = np.full_like(part, np.inf)
            return Estimated(part / self.total if self.total else unknown, -unknown, unknown)
        middle = (part * self.total - square * with_total) / lead
        reach = np.sqrt(np.maximum(0.0, middle**2 - (part**2 - square * variances) / lead))
        return Estimated(part / self.total, middle - reach, middle + reach)

    def quantiles(self, shares: Sequence[float]) -> Estimated:
        """
        Return the number below which each share of the group's users lies.

        The interval is the hull of all numbers x for which F̂(x) is within its half-width of the
        share. At a share λ of a bucket, F̂ has the variance (1-λ)s + λs' - λ(1-λ)v for those at its
        edges, s and s', and v of its share. Half-widths are exact at _PARTS places of a bucket, and
        linear between, which is an upper bound, since standard errors are convex. An end within
        the first or the last bucket of a task that clips numbers is infinite.
        """
        knots = np.arange(len(self.edges))
        places = np.linspace(0, knots[-1], _PARTS * knots[-1] + 1)
        sums = np.append(0.0, np.cumsum(self.shares))
        part = places[:-1] % 1
        between = np.append(part * (1 - part) * np.repeat(self.variances, _PARTS), 0.0)
        variances = np.interp(places, knots, np.append(0.0, self.prefix_variances)) - between
        covariances = np.interp(places, knots, np.append(0.0, np.cumsum(self.with_total)))
        below, numbers = np.interp(places, knots, sums), np.interp(places, knots, self.edges)
        found = []
        for share in shares:
            gap = below - share * self.total
            spread = variances + share**2 * self.total_variance - 2 * share * covariances
            reach = self.half_width * np.sqrt(np.maximum(spread, 0.0))
            upper = np.maximum.accumulate(gap + reach)
            lower = np.minimum.accumulate((gap - reach)[::-1])[::-1]
            low = float(np.interp(0.0, -upper[::-1], numbers[::-1]))
            high = float(np.interp(0.0, lower, numbers))
            if self.clipped:
                low = -np.inf if low < self.edges[1] else low
                high = np.inf if high > self.edges[-2] else high
            found.append((root(sums - share * self.total, self.edges), low, high))
        return Estimated(*np.array(found).reshape(-1, 3).T)
