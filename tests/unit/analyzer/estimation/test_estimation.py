import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize

from analyzer.estimation.histogram import Likelihood, estimate, maximise_likelihood
from analyzer.estimation.projection import norm_sub
from common.mechanisms.base import Channel, Mechanism, Mixture
from common.mechanisms.randomized_response import Grr
from common.mechanisms.registry import mechanism_of
from common.mechanisms.weights import ResponseWeights
from deploy.datasets.choice import dataset
from tests.support.tasks import published


def _channel(mechanism: Mechanism, real_share: float) -> Channel:
    channel = mechanism.channel(real_share)
    assert channel is not None
    return channel


def _distance(x: NDArray[np.float64], at: NDArray[np.float64]) -> float:
    return float(((x - at) ** 2).sum())


def test_norm_sub_is_the_closest_distribution() -> None:
    """As a general solver finds it."""
    rng = np.random.default_rng(1)
    for _ in range(5):
        shares = rng.normal(0.1, 0.3, 6)
        solved = optimize.minimize(
            _distance,
            np.full(6, 1 / 6),
            (shares,),
            bounds=[(0, None)] * 6,
            constraints=optimize.LinearConstraint(np.ones((1, 6)), 1, 1),
            tol=1e-12,
        )
        np.testing.assert_allclose(norm_sub(shares), solved.x, atol=1e-5)


def test_shares_and_errors_are_published_unchanged() -> None:
    """Neither rounded, scaled nor refined."""
    mechanism, mixture = mechanism_of(published().task), Mixture(n_real=400.0, n_dummies=400.0)
    rng = np.random.default_rng(9)
    reports = [mechanism.randomize(np.arange(400) % 7, rng), mechanism.dummies(400, rng)]
    cells = mechanism.tally(np.concatenate(reports))
    found = estimate(mechanism, cells, mixture, "norm-sub")
    shares = mechanism.debias(cells, mixture)
    variances = mechanism.variance(np.clip(shares, 0, 1), mixture)

    assert shares.tolist() == found.frequencies.tolist()
    np.testing.assert_allclose(found.standard_errors**2, variances, rtol=1e-9)
    assert float(mechanism.variance(found.refined, mixture).mean()) == found.mse_theory


def test_em_reaches_the_maximum_likelihood() -> None:
    """With no gain left, the gradient's conditions hold [KKT]."""
    mechanism = mechanism_of(published().task)
    rng = np.random.default_rng(2)
    values = rng.choice(100, 5000, p=np.arange(100, 0, -1) / 5050)
    reports = np.concatenate([mechanism.randomize(values, rng), mechanism.dummies(5000, rng)])
    cells, channel = mechanism.tally(reports), _channel(mechanism, 0.5)
    shares = maximise_likelihood(cells, channel, 100, min_gain=1e-9)
    gradient = channel.adjoint(cells / channel.forward(shares)) / cells.sum()

    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()
    assert gradient.max() < 1 + 1e-3
    np.testing.assert_allclose(gradient[shares > 1e-3], 1, atol=1e-3)


def test_em_keeps_frequent_items() -> None:
    """
    Half of what is reported is dummies, and a leap overshoots: frequent items must not stay at 0.

    Seed 1; where a share is 0 the likelihood must not rise with it [KKT].
    """
    counts = dataset("zipf:1000,1.1").counts
    grr = Grr(1000, ResponseWeights.for_epsilon(math.inf))
    cells = counts + np.random.default_rng(1).binomial(1700, 0.5, 1000)
    channel = grr.channel(1_000_000 / int(cells.sum()))
    shares = maximise_likelihood(cells, channel, 1000)
    gradient = channel.adjoint(cells / channel.forward(shares)) / cells.sum()

    assert gradient.max() < 1.01
    np.testing.assert_allclose(shares[:10], counts[:10] / 1_000_000, rtol=0.05)


def test_em_rejects_a_point_where_the_reports_are_impossible() -> None:
    """A share of 0 for an item that was reported without noise."""
    grr = Grr(4, ResponseWeights.for_epsilon(math.inf))
    landed = np.array([1.0, 0.0, 0.0, 0.0])
    stayed, likelihood = Likelihood(np.array([5, 3, 0, 0]), grr.channel(1.0)).step(landed)

    assert landed.tolist() == stayed.tolist()
    assert -np.inf == likelihood


def test_an_estimate_without_noise_and_dummies_is_exact() -> None:
    """Its errors are 0."""
    grr = Grr(4, ResponseWeights.for_epsilon(math.inf))
    histogram = estimate(
        grr, np.array([5, 3, 2, 0]), mixture=Mixture(n_real=10), refinement="norm-sub"
    )

    assert [0.5, 0.3, 0.2, 0.0] == histogram.frequencies.tolist()
    assert [0.0] * 4 == histogram.standard_errors.tolist()
    assert 0.0 == histogram.mse_theory
