"""Debiased frequencies with exact variances: one place for every mechanism. Run by the analyzer."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import stats

from common.mechanisms.mechanism import Counts, Vector


class SupportProbabilities(Protocol):
    """What an estimate needs of a mechanism."""

    @property
    def p(self) -> float:
        """Probability that a report supports its own value."""

    @property
    def q(self) -> float:
        """Probability that a report supports another given value."""

    @property
    def q_dummy(self) -> float:
        """Probability that a dummy supports a given value."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frequencies:
    """Debiased shares of items; they may be negative and need not sum to 1."""

    values: Vector
    standard_errors: Vector

    def interval(self, confidence: float) -> tuple[Vector, Vector]:
        """Give the ends of each item's own interval, by the normal approximation."""
        reach = float(stats.norm.ppf((1 + confidence) / 2)) * self.standard_errors
        return self.values - reach, self.values + reach


def debias(
    support: Counts, *, n_real: float, n_dummies: float, mechanism: SupportProbabilities
) -> Frequencies:
    """
    Estimate the share of each item among the users whose reports were counted.

    f̂_v = (C_v - n·q - M·q_dummy) / (n·(p - q)), with M the actual number of dummies [WBLJ17, eq. 1,
    with the dummies' share taken off].

    Args:
        support: C_v, shape (domain_size,).
        n_real: n, users' own reports among those counted, above 0; an expectation where reports
            were refused.
        n_dummies: M, dummies among those counted.
        mechanism: Gives p, q, q_dummy.

    Returns:
        Unbiased shares, and standard errors with the estimate put in for the truth.
    """
    signal = n_real * (mechanism.p - mechanism.q)
    noise = n_real * mechanism.q + n_dummies * mechanism.q_dummy
    values = (support.astype(np.float64) - noise) / signal
    shares = np.clip(values, 0, 1)
    errors = np.sqrt(variance(shares, n_real=n_real, n_dummies=n_dummies, mechanism=mechanism))
    return Frequencies(values=values, standard_errors=errors)


def variance(
    shares: Vector, *, n_real: float, n_dummies: float, mechanism: SupportProbabilities
) -> Vector:
    """
    Give the exact variance of each debiased share, given the true shares.

    [n·f·p(1-p) + n(1-f)·q(1-q) + M·q_d(1-q_d)] / (n(p-q))²: counts are sums of independent
    Bernoulli variables, one a report.
    """
    p, q, q_dummy = mechanism.p, mechanism.q, mechanism.q_dummy
    own = n_real * shares * p * (1 - p) + n_real * (1 - shares) * q * (1 - q)
    total: Vector = (own + n_dummies * q_dummy * (1 - q_dummy)) / (n_real * (p - q)) ** 2
    return total


def expected_mse(
    domain_size: int, *, n_real: float, n_dummies: float, mechanism: SupportProbabilities
) -> float:
    """Give the mean over items of the exact variance. It needs no truth: shares sum to 1."""
    uniform = np.full(domain_size, 1 / domain_size)
    return float(variance(uniform, n_real=n_real, n_dummies=n_dummies, mechanism=mechanism).mean())
