"""
Counts and estimates of true items among clusters, against devices' own draws.

Each limit is seven standard deviations of a mean over thousands of batches, practically Gaussian:
each test fails by chance with probability below 1e-8 over seeds.
"""

import math
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.analyzer.estimation.histogram import estimate
from shuffledp.common.errors import ReportError
from shuffledp.common.mechanisms.base import Mixture
from shuffledp.common.mechanisms.signed import Signed
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.messages.submission import plain_reports
from shuffledp.common.task.cluster_dummies import ClusterDummies

_SIGNED: Final = Signed(
    6,
    ResponseWeights.for_epsilon(math.inf),
    ClusterDummies(
        negative_weight=3,
        trials=2,
        clusters=((3, 1, 9), (1, 0, 2), (0, 1, 1), (4, 0, 1)),
        rooms=((1, 2**30, 2**31), (4, 2**31, 3 * 2**30)),
    ),
)
_USERS: Final = np.array([9, 1, 0, 4, 6, 0])
_N: Final = int(_USERS.sum())
_NOISY: Final = replace(_SIGNED, weights=ResponseWeights.for_epsilon(1.5))
_BATCHES: Final = 2000
_LIMIT: Final = 7.0


@cache
def _of_devices(mechanism: Signed) -> NDArray[np.int64]:
    """Return the counts of many batches, device by device, shape (batches, 12)."""
    rng = np.random.default_rng(3)
    batches = []
    for _ in range(_BATCHES):
        own = mechanism.randomize(np.repeat(np.arange(6), _USERS), rng)
        drawn = [mechanism.clusters.draw_one(6, rng)[0] for _ in range(_N)]
        reports = np.concatenate([own, plain_reports(np.concatenate(drawn))])
        batches.append(mechanism.tally(reports))
    return np.array(batches)


_each_noise: Final = pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param(_SIGNED, id="true items", marks=pytest.mark.slow),
        pytest.param(_NOISY, id="randomized response"),
    ],
)


@_each_noise
def test_sampled_counts_have_the_distribution_of_devices_reports(mechanism: Signed) -> None:
    """Means, variances, and covariances between positive and negative counts agree."""
    rng = np.random.default_rng(4)
    samples = (
        _of_devices(mechanism),
        np.array([mechanism.sample_cells(_USERS, 0, rng) for _ in range(_BATCHES)]),
    )
    columns = [
        np.concatenate(
            [each, (each - each.mean(axis=0)) ** 2, np.prod(np.split(each, 2, axis=1), axis=0)],
            axis=1,
        )
        for each in samples
    ]
    apart = columns[0].mean(axis=0) - columns[1].mean(axis=0)
    error = np.sqrt((columns[0].var(axis=0) + columns[1].var(axis=0)) / _BATCHES)

    assert np.abs(apart / error).max() < _LIMIT


@_each_noise
def test_shares_are_unbiased_with_the_stated_variance(mechanism: Signed) -> None:
    """
    For every item, absent ones included; they sum to 1 in every batch.

    Most clusters cancel, so that another negative weight at the analyzer would show.
    """
    mixture = Mixture(n_real=_N)
    shares = np.array([mechanism.debias(cells, mixture) for cells in _of_devices(mechanism)])
    stated = mechanism.variance(_USERS / _N, mixture)
    off = (shares.mean(axis=0) - _USERS / _N) / np.sqrt(stated / _BATCHES)
    squares = (shares - _USERS / _N) ** 2
    error = squares.std(axis=0) / np.sqrt(_BATCHES)

    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    assert np.abs(off).max() < _LIMIT
    assert np.abs((squares.mean(axis=0) - stated) / error).max() < _LIMIT


def test_only_items_of_both_signs_are_valid() -> None:
    """Null reports and larger numbers are refused."""
    reports = plain_reports(np.array([0, 11, 12, 2**32 - 1]))
    assert [True, True, False, False] == _SIGNED.valid(reports).tolist()
    assert [True, False, False, False] == _SIGNED.supports(reports, 0).tolist()
    with pytest.raises(ReportError, match="not below 12"):
        _SIGNED.tally(reports)


_PEAKED: Final = Signed(
    60,
    _SIGNED.weights,
    ClusterDummies(
        negative_weight=3,
        trials=1,
        clusters=((3, 1, 400), (1, 0, 80), (0, 1, 12), (12, 0, 4)),
        rooms=((1, 2**30, 2**31), (12, 2**31, 3 * 2**30)),
    ),
)
"""Noise with heavier tails than the normal distribution's."""


@pytest.mark.parametrize("confidence", [pytest.param(0.95, marks=pytest.mark.slow), 0.999])
def test_intervals_cover_as_many_shares_as_they_say(confidence: float) -> None:
    """
    At least the nominal share of 300,000, and at most half of the misses too few.

    Seed 5; the normal factor would cover 99.5 % instead of 99.9 %. The limits are five standard
    deviations off, so the test fails by chance with probability 6e-7.
    """
    users, batches, rng = np.full(60, 66), 5000, np.random.default_rng(5)
    mixture = Mixture(n_real=int(users.sum()))
    first = estimate(_PEAKED, _PEAKED.sample_cells(users, 0, rng), mixture, "norm-sub")
    reach = first.half_width(confidence) * first.standard_errors
    missed = 0
    for _ in range(batches):
        shares = _PEAKED.debias(_PEAKED.sample_cells(users, 0, rng), mixture)
        missed += int((np.abs(shares - 1 / 60) > reach).sum())
    expected = 60 * batches * (1 - confidence)
    slack = 5 * math.sqrt(expected)

    assert expected / 2 - slack < missed < expected + slack


def test_clusters_that_cancel_add_no_error() -> None:
    """Counts are exact, and so are the stated errors."""
    cancelling = replace(_SIGNED.clusters, clusters=((3, 1, 1),), rooms=((4, 2**31, 2**31),))
    mechanism, rng = replace(_SIGNED, clusters=cancelling), np.random.default_rng(6)
    cells = mechanism.sample_cells(_USERS, 0, rng)
    found = estimate(mechanism, cells, Mixture(n_real=_N), "norm-sub")

    assert cells[6:].any()
    np.testing.assert_allclose(_N * found.frequencies, _USERS, atol=1e-12)
    assert (0, 0) == (found.standard_errors.max(), found.mse_theory)


def test_only_dishonest_totals_are_unexplained() -> None:
    """
    Ten batches of 20,000 honest users; then 1 % send negative reports only, or none add clusters.

    Seed 7; fails by chance with probability 2e-5.
    """
    users, rng = np.array([6000, 5000, 4000, 3000, 2000, 0]), np.random.default_rng(7)
    for _ in range(10):
        cells = _SIGNED.sample_cells(users, 0, rng)
        assert () == _SIGNED.unexplained(cells, 20_000)
    flood = cells.copy()
    flood[6:9] += 600
    [warning] = _SIGNED.unexplained(flood, 20_000)
    alone = np.concatenate([users, np.zeros(6, dtype=np.int64)])

    assert "negative reports; 20,000 honest users send" in warning
    assert 2 == len(_SIGNED.unexplained(alone, 20_000))
