"""
Counts and estimates of true items among clusters, against devices' own draws.

Each limit is seven standard deviations of a mean over thousands of batches, practically Gaussian:
each test fails by chance with probability below 1e-8 over seeds.
"""

import math
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from common.errors import ReportError
from common.mechanisms.base import Mixture
from common.mechanisms.signed import Signed
from common.mechanisms.weights import ResponseWeights
from common.messages.submission import plain_reports
from common.task.cluster_spec import ClusterSpec
from user_agent.contribution import draw_clusters

_SIGNED: Final = Signed(
    6,
    ResponseWeights.for_epsilon(math.inf),
    ClusterSpec(
        negative_weight=3,
        trials=2,
        clusters=((3, 1, 9), (1, 0, 2), (0, 1, 1), (4, 0, 1)),
        rooms=((1, 2**30, 2**31), (4, 2**31, 3 * 2**30)),
    ),
)
_USERS: Final = np.array([9, 1, 0, 4, 6, 0])
_N: Final = int(_USERS.sum())
_BATCHES: Final = 4000
_LIMIT: Final = 7.0


def _of_devices() -> NDArray[np.int64]:
    """Return the counts of many batches, device by device, shape (batches, 12)."""
    rng = np.random.default_rng(3)
    own = _SIGNED.randomize(np.repeat(np.arange(6), _USERS), rng)
    batches = []
    for _ in range(_BATCHES):
        drawn = [draw_clusters(_SIGNED.clusters, 6, rng)[0] for _ in range(_N)]
        batches.append(_SIGNED.tally(np.concatenate([own, plain_reports(np.concatenate(drawn))])))
    return np.array(batches)


def test_sampled_counts_have_the_distribution_of_devices_reports() -> None:
    """Means, variances, and covariances between positive and negative counts agree."""
    rng = np.random.default_rng(4)
    samples = (
        _of_devices(),
        np.array([_SIGNED.sample_cells(_USERS, 0, rng) for _ in range(_BATCHES)]),
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


def test_shares_are_unbiased_with_the_stated_variance() -> None:
    """
    For every item, absent ones included; they sum to 1 in every batch.

    Most clusters cancel, so that another negative weight at the analyzer would show.
    """
    mixture = Mixture(n_real=_N)
    shares = np.array([_SIGNED.debias(cells, mixture) for cells in _of_devices()])
    stated = _SIGNED.variance(shares[0], mixture)
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
