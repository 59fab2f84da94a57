"""
Debiased shares and their exact variances, for every mechanism whose reports support items.

A mechanism states the probabilities that a report supports the user's value (p) or a given other
value (q), and that a uniform dummy supports a given value (q_dummy). Run by the analyzer and the
planner.
"""

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.mechanisms import base
from shuffledp.common.mechanisms.arguments import CheckedArguments
from shuffledp.common.mechanisms.base import Counts, Reports, Vector
from shuffledp.common.mechanisms.count_law import Draws, interval_table
from shuffledp.common.mechanisms.weights import OddsOfWeights
from shuffledp.common.messages.result import IntervalTable
from shuffledp.common.messages.submission import PLAIN_REPORT

Real = float | Vector


class SupportCounting(CheckedArguments, base.Mechanism):
    """Base class of mechanisms whose estimator counts the reports that support each item."""

    @property
    @abstractmethod
    def p(self) -> float:
        """Probability that a report supports the user's value."""

    @property
    @abstractmethod
    def q(self) -> float:
        """Probability that a report supports a given value other than the user's."""

    @property
    @abstractmethod
    def q_dummy(self) -> float:
        """Probability that a uniform dummy supports a given value."""

    @property
    def support_sizes(self) -> tuple[int, int]:
        """Fewest items that a report supports, if any, and most, if not all; or bounds on them."""
        return 1, self.domain_size - 1

    def influence(self, most: int) -> tuple[float, float]:
        """
        Return the users that `most` reports add to an item or take from it; of hashes, bounds.

        All reports support the fewest items, or the most [CJG21]. With the known total, shared
        evenly, a report that supports t of d items adds (1 - t/d) / (p - q) to these, and takes
        t/d / (p - q) from others; its user counts 1/d for each. Cost: for a hash family one
        transform.
        """
        size = self.domain_size
        fewest, largest = (number / size for number in self.support_sizes)
        per_report = most / (self.p - self.q)
        return per_report * (1 - fewest) + 1 / size, per_report * largest - 1 / size

    def support_counts(self, cells: Counts) -> Counts:
        """Count the reports that support each item, (domain_size,): by default the cells."""
        return cells

    def debias(self, cells: Counts, mixture: base.Mixture) -> Vector:
        """
        Estimate the share of each item among the users whose reports were counted.

        f̂_v = (C_v - n·κ·q - M·q_dummy - z̄) / (n·κ·(p - q)), for counts C_v of supporting reports, n
        users whose reports are kept with probability κ, M uniform dummies, and z̄ expected dummies
        that name the item. With κ = 1, M = 0 and z̄ = 0 it is that of pure protocols [WBLJ17].
        """
        own = mixture.n_real * mixture.keep_probability
        noise = own * self.q + mixture.n_dummies * self.q_dummy + mixture.item_mean
        counts = self.support_counts(cells).astype(np.float64)
        return (counts - noise) / (own * (self.p - self.q))

    def variance(self, shares: Vector, mixture: base.Mixture) -> Vector:
        return bernoulli_variance(
            shares,
            n_real=mixture.n_real,
            n_dummies=mixture.n_dummies,
            p=self.p,
            q=self.q,
            q_dummy=self.q_dummy,
            keep_probability=mixture.keep_probability,
            item_variance=mixture.item_variance,
        )

    def summed_cells(self, channel: base.Channel, *, exact_prefixes: bool = False) -> base.Linear:
        """Return the estimator that sums the counts of the cells that support an item."""
        ones = np.ones(self.domain_size)
        return base.Linear(
            gather=channel.incidence.adjoint,
            scatter=channel.incidence.forward,
            base=self.q * ones,
            gain=self.p - self.q,
            dummy=self.q_dummy * ones,
            channel=channel,
            exact_prefixes=exact_prefixes,
        )

    def interval_table(self, mixture: base.Mixture) -> IntervalTable:
        """
        Return intervals by the exact distribution of a count of users' and dummies' reports.

        Shares that sum to 1 lose the average of what the shuffler adds to all items, which changes
        the shape of the tails. If the shuffler samples too, this is left out.
        """
        kept = mixture.keep_probability
        added = (Draws.coins(round(mixture.n_dummies), self.q_dummy), *mixture.item_law)
        among = 1 if mixture.total_is_known or kept < 1 else self.domain_size
        return interval_table(mixture.n_real, kept * self.p, kept * self.q, added, among)


class IndependentSupport(SupportCounting):
    """Base class of mechanisms whose reports support items independently, at least in a model."""

    def linear(self, real_share: float) -> None:
        """Return None: covariances need no cells."""

    def variances_of_prefixes(self, shares: Vector, mixture: base.Mixture, groups: int) -> Vector:
        return np.cumsum(self.variance(shares, mixture).reshape(groups, -1), axis=1).ravel()


class AnswerCounting(OddsOfWeights, SupportCounting):
    """Base class of randomized response over answers: the items, or buckets of their hashes."""

    FACTORS: ClassVar[int] = 1

    @property
    @abstractmethod
    def answers(self) -> int:
        """Number of answers."""

    @cached_property
    def _total(self) -> int:
        return self.weights.total(self.answers)

    @property
    def p(self) -> float:
        """Probability true / W of the true answer, where W is the sum of all weights."""
        return self.weights.true / self._total

    @property
    def q_dummy(self) -> float:
        """Probability 1 / answers: the answer of a dummy is uniform."""
        return 1 / self.answers


class PlaceReports(CheckedArguments):
    """Base class of mechanisms whose report is one number: of an item, a place or a cell."""

    PLACE: ClassVar[str]
    """Noun for the number, with its article."""

    report_dtype = PLAIN_REPORT
    """One unsigned 32-bit number below `places`."""

    @property
    @abstractmethod
    def places(self) -> int:
        """Number of different reports."""

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Return which reports have a number below `places`. Run by the analyzer."""
        return reports["item"] < self.places

    def tally(self, reports: Reports) -> Counts:
        """Count reports by number, shape (places,). Run by the analyzer."""
        base.check_valid(self.valid(reports), f"{self.PLACE} is not below {self.places}")
        return np.bincount(reports["item"].astype(np.int64), minlength=self.places)


def bernoulli_variance(
    shares: Real,
    *,
    n_real: Real,
    n_dummies: Real,
    p: Real,
    q: Real,
    q_dummy: Real,
    keep_probability: Real = 1.0,
    item_variance: Real = 0.0,
) -> Vector:
    """
    Return the variance of debiased shares, given true shares f; all arguments broadcast.

    [n·f·κp(1-κp) + n(1-f)·κq(1-κq) + M·q_d(1-q_d) + Var z] / (nκ(p-q))² in the symbols of `debias`:
    a count sums an independent Bernoulli variable for each report and the number z of dummies that
    name the item. With κ = 1, M = 0 and z = 0 this is the variance of [WBLJ17].
    """
    own, other = keep_probability * p, keep_probability * q
    reports = n_real * shares * own * (1 - own) + n_real * (1 - shares) * other * (1 - other)
    total = reports + n_dummies * q_dummy * (1 - q_dummy) + item_variance
    return np.asarray(total / (n_real * keep_probability * (p - q)) ** 2, dtype=np.float64)
