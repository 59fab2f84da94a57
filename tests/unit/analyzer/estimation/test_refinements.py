"""Every refinement of shares, and the shrinking of means."""

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shuffledp.analyzer.estimation.expectation_maximization import (
    em_step,
    maximize_likelihood,
    smooth,
    smoothed_likelihood,
    squarem_step,
)
from shuffledp.analyzer.estimation.histogram import REFINEMENTS, DebiasedShares, estimate
from shuffledp.analyzer.estimation.projection import _posterior_means, base_cut
from shuffledp.analyzer.estimation.shrinkage import shrink_to_zero
from shuffledp.analyzer.finalize import mixture_of
from shuffledp.audit.harness.tasks import sample_task
from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.base import Channel, Counts, Incidence, Mixture, Vector
from shuffledp.common.mechanisms.covariance import ShareCovariance
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing, family_for
from shuffledp.common.mechanisms.numeric.number import Moments
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.mechanisms.square_wave import SquareWave, best_reach
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.protocols import Refinement
from shuffledp.deploy.datasets.sources import dataset
from shuffledp.lab.simulate.collection import collect
from shuffledp.lab.simulate.experiments.projection import shrink_to_common_mean
from tests.support.plain_refinements import is_right
from tests.support.tables import table
from tests.support.tasks import published

_GRR = Grr(4, ResponseWeights.for_epsilon(1.0))
_WITHOUT_CELLS: tuple[Refinement, ...] = (
    "norm-sub",
    "norm-cut",
    "norm-mul",
    "base-cut",
    "power-ns",
)
_SHARES = arrays(np.float64, st.integers(1, 30), elements=st.floats(-0.5, 1) | st.floats(-1e6, 1e6))


def _evidence(
    shares: Vector, *, error: float = 0.05, n_users: float = 1000.0, channel: Channel | None = None
) -> DebiasedShares:
    errors = np.full(len(shares), error)
    return DebiasedShares(
        shares=shares,
        standard_errors=errors,
        absent_errors=errors,
        n_users=n_users,
        cells=np.zeros(len(shares), np.int64),
        channel=channel,
    )


def _is_distribution(refined: Vector) -> bool:
    return bool((refined >= 0).all()) and abs(float(refined.sum()) - 1) < 1e-9


@pytest.mark.parametrize("name", _WITHOUT_CELLS)
@given(shares=_SHARES, error=st.sampled_from([0.0, 1e-9, 0.05, 1e3]), n_users=st.floats(0.5, 1e9))
def test_every_refinement_returns_a_distribution(
    name: Refinement, shares: Vector, error: float, n_users: float
) -> None:
    """Any shares, errors and number of users give one; a projection satisfies its plain formula."""
    evidence = _evidence(shares, error=error, n_users=n_users)
    refined = REFINEMENTS[name](evidence)

    assert shares.shape == refined.shape
    assert _is_distribution(refined)
    assert name == "power-ns" or is_right(name, evidence, refined)


@pytest.mark.parametrize("name", _WITHOUT_CELLS)
@settings(max_examples=40)
@given(shares=_SHARES, order=st.randoms(use_true_random=False))
def test_the_order_of_items_does_not_matter(
    name: Refinement, shares: Vector, order: Random
) -> None:
    """Renumbering items renumbers the answer."""
    places = list(range(len(shares)))
    order.shuffle(places)
    straight = REFINEMENTS[name](_evidence(shares))

    np.testing.assert_allclose(
        REFINEMENTS[name](_evidence(shares[places])), straight[places], atol=1e-9
    )


def test_base_cut_keeps_significant_shares_and_spreads_the_rest() -> None:
    """Of 20 items with error .1 the threshold is 2.807 errors: .29 stands out, .28 does not."""
    refined = base_cut(np.array([0.29, 0.28, *[0.0] * 18]), np.full(20, 0.1))

    np.testing.assert_allclose(refined, [0.29, *[0.71 / 19] * 19])


@table("share", [-0.01, 0.0, 1e-5, 1e-3, 7.9e-3, 8.1e-3, 0.3, 0.999, 1.2])
@table("steepness", [0.3, 1.0, 1.7])
def test_a_posterior_mean_is_the_integral(share: float, steepness: float) -> None:
    """Compared with the integral of the normal density times the power law, to 1e-4."""
    sigma, least = 1e-3, 1e-6
    (found,) = _posterior_means(np.array([share]), np.array([sigma]), steepness, least)
    logs = np.linspace(np.log(least), 0, 200_001)
    seen = min(share, 1.0)
    weights = -((np.exp(logs) - seen) ** 2) / (2 * sigma**2) + (1 - steepness) * logs
    weights = np.exp(weights - weights.max())

    assert float(weights @ np.exp(logs) / weights.sum()) == pytest.approx(found, rel=1e-4)


def test_smoothing_averages_neighbours() -> None:
    """Compared with averages computed by hand."""
    np.testing.assert_allclose(smooth(np.array([0.4, 0.0, 0.0, 0.6])), [0.3, 0.1, 0.15, 0.45])
    assert [1.0] == smooth(np.array([1.0])).tolist()


def test_ems_reaches_the_fixed_point_of_plain_steps() -> None:
    """Extrapolation leads to the fixed point of plain EM steps with smoothing. Seed 1."""
    hashed = LocalHashing(32, family_for(32, 7), ResponseWeights.for_epsilon(2.0), b"n" * 32)
    bell, rng = np.exp(-(((np.arange(32) - 17) / 8) ** 2)), np.random.default_rng(1)
    users = rng.multinomial(50_000, bell / bell.sum())
    cells, channel = hashed.sample_cells(users, 0, rng), hashed.channel(1.0)
    plain = np.full(32, 1 / 32)
    for _ in range(20_000):
        moved = plain * channel.adjoint(cells / channel.forward(plain)) / cells.sum()
        if np.abs(smooth(moved) - plain).sum() < 1e-12:
            break
        plain = smooth(moved)
    found = smoothed_likelihood(cells, channel, 32, min_change=1e-12)

    np.testing.assert_allclose(found, plain, atol=1e-6)


@pytest.mark.parametrize("name", ["em", "ems"])
@given(cells=arrays(np.int64, 4, elements=st.integers(0, 10**6)))
def test_em_and_ems_return_a_distribution_for_any_counts(name: Refinement, cells: Counts) -> None:
    """The reports may all be in one cell, absent, or anywhere."""
    evidence = DebiasedShares.of(_GRR, cells, Mixture(n_real=max(1, int(cells.sum()))))

    assert _is_distribution(REFINEMENTS[name](evidence))


@pytest.mark.parametrize("name", ["em", "ems"])
def test_em_and_ems_need_cells(name: Refinement) -> None:
    """No other refinement is used silently."""
    with pytest.raises(TaskError, match=f"the refinement {name} needs a mechanism whose cells"):
        REFINEMENTS[name](_evidence(np.array([0.5, 0.5])))


def test_an_extrapolation_follows_scheme_s3() -> None:
    """
    Exact where every step halves the distance, still at a fixed point, no shorter than two steps.

    Steps of -.2 and -.19 have the length 20: .5 falls to .5 - 8 + 4 = -3.5, which is raised to a
    tenth of .11, and the other share rises to 4.5.
    """
    goal, away = np.array([0.2, 0.3, 0.5]), np.array([0.1, 0.0, -0.1])
    landed = squarem_step(goal + away, goal + away / 2, goal + away / 4)
    start, first, second = np.array([0.5, 0.5]), np.array([0.3, 0.7]), np.array([0.11, 0.89])
    raised = squarem_step(start, first, second)

    np.testing.assert_allclose(landed, goal, rtol=1e-12)
    np.testing.assert_array_equal(squarem_step(goal, goal, goal), goal)
    np.testing.assert_allclose(squarem_step(goal + away, goal - away / 2, goal), goal, rtol=1e-12)
    np.testing.assert_allclose(raised, np.array([0.011, 4.5]) / 4.511, rtol=1e-12)


@pytest.mark.parametrize("way", get_args(Refinement))
def test_every_refinement_satisfies_its_plain_formula(way: Refinement) -> None:
    """A result mixed with 3 % of the uniform distribution does not satisfy it."""
    task = sample_task(protocol="murs", domain_size=12, local_epsilon=1.5, buckets=5)
    mechanism, rng = mechanism_of(task), np.random.default_rng(1)
    users = np.array([700_000, *[0] * 10, 300_000])
    counted = collect(task, mechanism, users, rng, one_by_one=False)
    mixture = mixture_of(task, 1_000_000, counted=counted.n_reports)
    evidence = DebiasedShares.of(mechanism, counted.cells, mixture)
    refined = REFINEMENTS[way](evidence)

    assert is_right(way, evidence, refined)
    assert not is_right(way, evidence, 0.97 * refined + 0.03 / 12)
    assert not is_right(way, evidence, np.full(12, 1 / 12))


@table(
    ("shrink", "means", "expected"),
    [
        (shrink_to_zero, [2, 0, 0, -2], [1.5, 0, 0, -1.5]),
        (shrink_to_zero, [0.1, -0.1, 0.1, -0.1, 0.1], [0] * 5),
        (shrink_to_zero, [0, 0, 0], [0, 0, 0]),
        (shrink_to_zero, [0.1], [0.1]),
        (shrink_to_zero, [0.1, 0.3], [0.1, 0.3]),
        (shrink_to_common_mean, [7, 5, 5, 3], [6.75, 5, 5, 3.25]),
        (shrink_to_common_mean, [0.1, -0.1, 0.1, -0.1, 0.1], [0.02] * 5),
        (shrink_to_common_mean, [0.1, 0.2, 0.6], [0.1, 0.2, 0.6]),
    ],
)
def test_means_shrink_by_james_and_steins_factor(
    shrink: Callable[[Moments], Vector], means: list[float], expected: list[float]
) -> None:
    """1 - (d-2)σ²/Σx² towards 0, 1 - (d-3)σ²/Σ(x-x̄)² towards the mean; too few are unchanged."""
    found = np.array(means, dtype=np.float64)
    moments = Moments(means=found, variances=np.ones(len(found)), unbiased=True)

    np.testing.assert_allclose(shrink(moments), expected, rtol=1e-12)


def test_shares_and_errors_are_published_with_the_known_total_alone() -> None:
    """Shares sum to 1; otherwise nothing is rounded, scaled or refined."""
    mechanism, mixture = mechanism_of(published().task), Mixture(n_real=400.0, n_dummies=400.0)
    rng = np.random.default_rng(9)
    reports = [mechanism.randomize(np.arange(400) % 7, rng), mechanism.dummies(400, rng)]
    cells = mechanism.tally(np.concatenate(reports))
    found = estimate(mechanism, cells, mixture, "norm-sub")
    shares = mechanism.debias(cells, mixture)
    variances = mechanism.variance(np.clip(shares, 0, 1), mixture)

    covariance = ShareCovariance.of_mechanism(mechanism, found.refined, mixture)
    assert covariance.summing_to_one(shares).tolist() == found.frequencies.tolist()
    assert abs(found.frequencies.sum() - 1) < 1e-12 < abs(shares.sum() - 1)
    expected = variances * covariance.left()
    np.testing.assert_allclose(found.standard_errors**2, expected, rtol=1e-9)
    at_shares = covariance.at(found.frequencies).of_shares()
    assert float(at_shares.mean()) == found.mse_theory


def test_em_reaches_the_maximum_likelihood() -> None:
    """With no gain left, the conditions of Karush, Kuhn and Tucker hold."""
    mechanism = mechanism_of(published(domain_size=30).task)
    rng = np.random.default_rng(2)
    values = rng.choice(30, 5000, p=np.arange(30, 0, -1) / 465)
    reports = np.concatenate([mechanism.randomize(values, rng), mechanism.dummies(5000, rng)])
    cells, channel = mechanism.tally(reports), mechanism.channel(0.5)
    assert channel is not None
    shares = maximize_likelihood(cells, channel, 30, min_gain=1e-9)
    gradient = channel.adjoint(cells / channel.forward(shares)) / cells.sum()

    assert shares.sum() == pytest.approx(1)
    assert 0 <= shares.min() < 1e-6
    assert gradient.max() < 1 + 1e-3
    np.testing.assert_allclose(gradient[shares > 1e-3], 1, atol=1e-3)


def test_em_keeps_frequent_items() -> None:
    """Half the reports are dummies, and extrapolation overshoots; KKT's conditions hold at last."""
    counts = dataset("zipf:1000,1.1").counts
    grr = Grr(1000, ResponseWeights.for_epsilon(math.inf))
    cells = counts + np.random.default_rng(1).binomial(1700, 0.5, 1000)
    channel = grr.channel(1_000_000 / int(cells.sum()))
    shares = maximize_likelihood(cells, channel, 1000)
    gradient = channel.adjoint(cells / channel.forward(shares)) / cells.sum()

    assert gradient.max() < 1.01
    np.testing.assert_allclose(shares[:10], counts[:10] / 1_000_000, rtol=0.05)


def test_em_rejects_a_point_where_the_reports_are_impossible() -> None:
    """An item that was reported without noise has a share of 0."""
    grr = Grr(4, ResponseWeights.for_epsilon(math.inf))
    landed = np.array([1.0, 0.0, 0.0, 0.0])
    stayed, likelihood = em_step(np.array([5, 3, 0, 0]), grr.channel(1.0), landed)

    assert landed.tolist() == stayed.tolist()
    assert -np.inf == likelihood


def test_an_estimate_without_noise_and_dummies_is_exact() -> None:
    """The shares are those of the counts, and the errors are 0."""
    grr = Grr(4, ResponseWeights.for_epsilon(math.inf))
    histogram = estimate(
        grr, np.array([5, 3, 2, 0]), mixture=Mixture(n_real=10), refinement="norm-sub"
    )

    assert [0.5, 0.3, 0.2, 0.0] == histogram.frequencies.tolist()
    assert [0.0] * 4 == histogram.standard_errors.tolist()
    assert 0.0 == histogram.mse_theory


class _Counted:
    """An incidence that counts its transforms."""

    def __init__(self, incidence: Incidence) -> None:
        self._incidence = incidence
        self.transforms = 0

    def forward(self, theta: Vector) -> Vector:
        self.transforms += 1
        return self._incidence.forward(theta)

    def adjoint(self, weights: Vector) -> Vector:
        return self._incidence.adjoint(weights)


def test_many_ordered_items_start_from_blocks_of_items() -> None:
    """An even start of 4,096 items takes some 2,000 transforms to get as close."""
    size, rng = 4096, np.random.default_rng(5)
    mechanism = SquareWave(size, best_reach(size, 2.0), ResponseWeights.for_epsilon(2.0))
    place = np.arange(size) / size
    shape = np.exp(-(((place - 0.3) / 0.1) ** 2)) + 0.3 * np.exp(-(((place - 0.7) / 0.05) ** 2))
    users = rng.multinomial(100_000, shape / shape.sum())
    channel = mechanism.channel(1.0)
    counted = _Counted(channel.incidence)
    incidence = Incidence(counted.forward, counted.adjoint)
    found = smoothed_likelihood(
        mechanism.sample_cells(users, 0, rng), replace(channel, incidence=incidence), size
    )

    assert np.abs(np.cumsum(found) - np.cumsum(users / 100_000)).max() < 0.02
    assert counted.transforms < 1000
