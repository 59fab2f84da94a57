"""
Every mechanism's estimates and its simulation of cells, against single reports.

Each test has a fixed seed. Limits are at least seven standard deviations of means over thousands of
collections, practically Gaussian: each test fails by chance with probability below 1e-8 over seeds.
"""

from functools import cache
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from randomgen import ChaCha

from shuffledp.common.mechanisms.base import Counts, Mechanism, Mixture
from shuffledp.common.mechanisms.rappor.permanent_response import scope_secret
from shuffledp.common.mechanisms.rappor.rappor import Rappor
from tests.support.mechanisms import EXAMPLES, example
from tests.support.moments import largest_deviation, moments

_USERS: Final = np.array([9, 1, 0, 4, 6, 0])
"""Users of each of six items."""
_DUMMIES: Final = 10
_RUNS: Final = 6000
_LIMIT: Final = 7.0

_ALIKE: Final = {
    *("binary-hashing", "string-hashing", "subset-selection", "warner", "wide square-wave")
}
"""Examples that share their code with another one, or only serve the documentation."""
_EVERY = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in _ALIKE else ()) for name in EXAMPLES],
)


def _users(mechanism: Mechanism) -> Counts:
    return _USERS[: mechanism.domain_size]


@cache
def _one_by_one(name: str, seed: int = 1) -> NDArray[np.float64]:
    """Return cells of many collections from single reports: shape (runs, cells)."""
    mechanism, rng = example(name), np.random.default_rng(seed)
    users = _users(mechanism)
    n_users = int(users.sum())
    values = np.tile(np.repeat(np.arange(len(users)), users), _RUNS)
    own = mechanism.randomize(values, rng).reshape(_RUNS, n_users)
    dummies = mechanism.dummies(_RUNS * _DUMMIES, rng).reshape(_RUNS, _DUMMIES)
    reports = np.concatenate([own, dummies], axis=1)
    return np.array([mechanism.tally(each) for each in reports], dtype=np.float64)


def _sampled(mechanism: Mechanism, rng: np.random.Generator) -> NDArray[np.float64]:
    users = _users(mechanism)
    drawn = [mechanism.sample_cells(users, _DUMMIES, rng) for _ in range(_RUNS)]
    return np.array(drawn, dtype=np.float64)


@_EVERY
def test_sampled_cells_have_the_distribution_of_single_reports(name: str) -> None:
    """
    Means, variances and covariances of all cells agree, over 6,000 collections each way.

    Seeds 1 and 2. There are at most 152 figures per mechanism; over six other seeds the largest
    deviation of any of them was 3.7 standard errors, and 7 are allowed.
    """
    mechanism = example(name)
    single = _one_by_one(name)
    sampled = _sampled(mechanism, np.random.default_rng(2))
    centre = single.mean(axis=0)

    assert largest_deviation(moments(single, centre), moments(sampled, centre)) < _LIMIT


def test_sampled_cells_of_rappor_have_the_distribution_of_single_reports() -> None:
    """
    They agree like those above, over 2,500 collections of 14 people; independent cells do not.

    Seeds 6 and 7. There are 65 figures, each within 7 standard errors: 1e-10 over seeds.
    """
    spec = Rappor.specify(bits=4, hashes=2, cohorts=2, f=0.5, p=0.25, q=0.875)
    mechanism, users, runs = Rappor.of(spec, ()), np.array([9, 1, 4]), 2500
    rng, other = np.random.Generator(ChaCha(key=6, rounds=20)), np.random.default_rng(7)
    people = np.repeat(["a", "b", "c"], users).tolist()
    device = (6).to_bytes(32, "big")
    secrets = [scope_secret(device, n.to_bytes(8, "big")) for n in range(runs * len(people))]
    reports = mechanism.randomize(mechanism.permanent(people * runs, secrets), rng)
    single = np.array([mechanism.tally(each) for each in np.array_split(reports, runs)])
    sampled = np.array([mechanism.sample_cells(users, ("a", "b", "c"), other) for _ in range(runs)])
    apart, centre = other.permuted(single, axis=0), single.mean(axis=0)

    assert largest_deviation(moments(single, centre), moments(sampled, centre)) < _LIMIT
    assert largest_deviation(moments(single, centre), moments(apart, centre)) > _LIMIT


@pytest.mark.parametrize("name", ["grr", "local-hashing", "square-wave"])
def test_independent_cells_are_rejected(name: str) -> None:
    """The test above rejects cells shuffled over runs, which keep their means and variances."""
    single = _one_by_one(name, seed=3)
    apart = np.random.default_rng(4).permuted(single, axis=0)
    centre = single.mean(axis=0)

    assert largest_deviation(moments(single, centre), moments(apart, centre)) > _LIMIT


@_EVERY
def test_estimates_are_unbiased_with_the_predicted_variance(name: str) -> None:
    """
    Over 6,000 collections of 20 people and 10 dummies, the mean is within 7 standard errors of the
    truth, and each item's variance within 20 % of theory.

    Seed 1. Over twelve other seeds the ratio of an item's variance to theory was .957 to 1.044 with
    standard deviation .021 at most over 8,000 collections: the limit is eight deviations away.
    """
    mechanism = example(name)
    users = _users(mechanism)
    truth = users / users.sum()
    mixture = Mixture(n_real=float(users.sum()), n_dummies=float(_DUMMIES))
    single = _one_by_one(name)
    estimates = np.array([mechanism.debias(cells, mixture) for cells in single])
    predicted = mechanism.variance(truth, mixture)
    bias = np.abs(estimates.mean(axis=0) - truth) / np.sqrt(predicted / _RUNS)

    assert bias.max() < _LIMIT
    np.testing.assert_allclose(estimates.var(axis=0), predicted, rtol=0.2)
