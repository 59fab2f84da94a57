"""
Debiased shares with exact variances, for every mechanism whose reports support items.

One place for all of them: a mechanism says how likely a report supports its own value (p), another
(q), and how likely a uniform dummy supports a value; the estimate follows. Run by the analyzer.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from common.mechanisms.base import Counts, Mixture, Vector

Real = float | Vector


class SupportProbabilities(Protocol):
    """How likely a report supports a value."""

    @property
    def p(self) -> float:
        """Probability that a report supports its own value."""

    @property
    def q(self) -> float:
        """Probability that a report supports another given value."""

    @property
    def q_dummy(self) -> float:
        """Probability that a uniform dummy supports a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """p, q and q_dummy alone: of a mechanism that has not been made yet."""

    p: float
    q: float
    q_dummy: float


class SupportCounting:
    """The estimator of a mechanism that counts which reports support an item; to be inherited."""

    @property
    @abstractmethod
    def p(self) -> float:
        """Probability that a report supports its own value."""

    @property
    @abstractmethod
    def q(self) -> float:
        """Probability that a report supports another given value."""

    @property
    @abstractmethod
    def q_dummy(self) -> float:
        """Probability that a uniform dummy supports a value."""

    @abstractmethod
    def support_counts(self, cells: Counts) -> Counts:
        """Count, for every item, the reports that support it. Shape (domain_size,)."""

    def debias(self, cells: Counts, mixture: Mixture) -> Vector:
        """Estimate the share of each item; see `debias`."""
        return debias(self.support_counts(cells), mixture, self)

    def variance(self, shares: Vector, mixture: Mixture) -> Vector:
        """Give the exact variance of each debiased share; see `variance`."""
        return variance(shares, mixture, self)


def debias(support: Counts, mixture: Mixture, probabilities: SupportProbabilities) -> Vector:
    """
    Estimate the share of each item among the users whose reports were counted.

    f̂_v = (C_v - n·κ·q - M·q_dummy - z̄) / (n·κ·(p - q)) [WBLJ17], for n users whose reports are
    kept with probability κ, M uniform dummies, and z̄ dummies expected of each item by name.

    Args:
        support: C_v, shape (domain_size,).
        mixture: What the counted reports are.
        probabilities: p, q and q_dummy.

    Returns:
        Unbiased shares, shape (domain_size,).
    """
    kept = mixture.n_real * mixture.kept
    signal = kept * (probabilities.p - probabilities.q)
    noise = kept * probabilities.q + mixture.n_dummies * probabilities.q_dummy + mixture.item_mean
    shares: Vector = (support.astype(np.float64) - noise) / signal
    return shares


def variance(shares: Vector, mixture: Mixture, probabilities: SupportProbabilities) -> Vector:
    """Give the exact variance of each debiased share, given the true shares; shape as shares."""
    return bernoulli_variance(
        shares,
        n_real=mixture.n_real,
        n_dummies=mixture.n_dummies,
        p=probabilities.p,
        q=probabilities.q,
        q_dummy=probabilities.q_dummy,
        kept=mixture.kept,
        item_variance=mixture.item_variance,
    )


def bernoulli_variance(
    shares: Real,
    *,
    n_real: Real,
    n_dummies: Real,
    p: Real,
    q: Real,
    q_dummy: Real,
    kept: Real = 1.0,
    item_variance: Real = 0.0,
) -> Vector:
    """
    Give the variance for numbers or arrays that fit each other, one entry a design.

    [n·f·κp(1-κp) + n(1-f)·κq(1-κq) + M·q_d(1-q_d) + Var z] / (nκ(p-q))²: counts are sums of
    independent Bernoulli variables, one a report, and of an item's own dummies.
    """
    own, other = kept * p, kept * q
    reports = n_real * shares * own * (1 - own) + n_real * (1 - shares) * other * (1 - other)
    total = reports + n_dummies * q_dummy * (1 - q_dummy) + item_variance
    return np.asarray(total / (n_real * kept * (p - q)) ** 2, dtype=np.float64)


def expected_mse(domain_size: int, mixture: Mixture, probabilities: SupportProbabilities) -> float:
    """Give the mean over items of the exact variance. It needs no truth: shares sum to 1."""
    uniform = np.full(domain_size, 1 / domain_size)
    return float(variance(uniform, mixture, probabilities).mean())
