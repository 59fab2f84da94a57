"""Debiased frequencies with exact variances: one place for every mechanism. Run by the analyzer."""

import numpy as np

from common.mechanisms.mechanism import Counts, SupportProbabilities, Vector

Real = float | Vector


def debias(
    support: Counts, *, n_real: float, n_dummies: float, mechanism: SupportProbabilities
) -> Vector:
    """
    Estimate the share of each item among the users whose reports were counted.

    f̂_v = (C_v - n·q - M·q_dummy) / (n·(p - q)), with M the actual number of dummies [WBLJ17],
    with the dummies' share taken off.

    Args:
        support: C_v, shape (domain_size,).
        n_real: n, users' own reports among those counted, above 0; an expectation where reports
            were refused.
        n_dummies: M, dummies among those counted.
        mechanism: Gives p, q, q_dummy.

    Returns:
        Unbiased shares, shape (domain_size,).
    """
    signal = n_real * (mechanism.p - mechanism.q)
    noise = n_real * mechanism.q + n_dummies * mechanism.q_dummy
    shares: Vector = (support.astype(np.float64) - noise) / signal
    return shares


def standard_errors(
    shares: Vector, *, n_real: float, n_dummies: float, mechanism: SupportProbabilities
) -> Vector:
    """Give each debiased share's standard error, with the estimate put in for the truth."""
    inside = np.clip(shares, 0, 1)
    errors: Vector = np.sqrt(
        variance(inside, n_real=n_real, n_dummies=n_dummies, mechanism=mechanism)
    )
    return errors


def variance(
    shares: Vector, *, n_real: float, n_dummies: float, mechanism: SupportProbabilities
) -> Vector:
    """
    Give the exact variance of each debiased share, given the true shares.

    [n·f·p(1-p) + n(1-f)·q(1-q) + M·q_d(1-q_d)] / (n(p-q))²: counts are sums of independent
    Bernoulli variables, one a report.
    """
    return bernoulli_variance(
        shares,
        n_real=n_real,
        n_dummies=n_dummies,
        p=mechanism.p,
        q=mechanism.q,
        q_dummy=mechanism.q_dummy,
    )


def bernoulli_variance(
    shares: Real, *, n_real: Real, n_dummies: Real, p: Real, q: Real, q_dummy: Real
) -> Vector:
    """Give the variance above for numbers or arrays that fit each other, one entry a design."""
    own = n_real * shares * p * (1 - p) + n_real * (1 - shares) * q * (1 - q)
    total = (own + n_dummies * q_dummy * (1 - q_dummy)) / (n_real * (p - q)) ** 2
    return np.asarray(total, dtype=np.float64)


def expected_mse(
    domain_size: int, *, n_real: float, n_dummies: float, mechanism: SupportProbabilities
) -> float:
    """Give the mean over items of the exact variance. It needs no truth: shares sum to 1."""
    uniform = np.full(domain_size, 1 / domain_size)
    return float(variance(uniform, n_real=n_real, n_dummies=n_dummies, mechanism=mechanism).mean())
