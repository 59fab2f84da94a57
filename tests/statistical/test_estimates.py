"""
The estimator against its theory: mean squared error and coverage, over repeated collections.

Reports are not sealed, which changes nothing.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.analyzer.estimation.histogram import estimate
from shuffledp.common.mechanisms.base import Mechanism, Mixture
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing, family_for
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.messages.result import Histogram
from shuffledp.deploy.datasets.names import IPUMS_1940_CITY
from shuffledp.deploy.datasets.sources import load

_RUNS = 40
_DUMMIES = 1


def _collect(
    mechanism: Mechanism, values: NDArray[np.int64], rng: np.random.Generator
) -> Histogram:
    n_users = len(values)
    own, dummies = mechanism.randomize(values, rng), mechanism.dummies(_DUMMIES * n_users, rng)
    return estimate(
        mechanism,
        mechanism.tally(np.concatenate([own, dummies])),
        mixture=Mixture(n_real=n_users, n_dummies=_DUMMIES * n_users),
        refinement="em",
    )


def _mechanism(name: str, nonce: bytes) -> Mechanism:
    weights = ResponseWeights.for_epsilon(4.0)
    if name == "grr":
        return Grr(915, weights)
    return LocalHashing(915, family_for(915, int(name)), weights, nonce)


@pytest.mark.parametrize(
    "name", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("53", "29", "7")), "grr"]
)
def test_error_and_coverage_match_theory(name: str) -> None:
    """
    Over forty collections from 20,000 people the mean error is .8 to 1.25 of theory, the coverage
    is 93 to 97 %, and refining always reduces the error.

    Seeds 0 .. 39, with a nonce for each. Measured over seeds, the mean ratio is .99 to 1.02 with
    standard deviation .01, the mean coverage 94.8 to 96.4 % with .13 %, and a run's refined error
    .16 to .24 of the unrefined one with .024: each limit is at least six deviations away, so each
    fails by chance with probability below 1e-8.
    """
    cities = load(IPUMS_1940_CITY)
    ratios, covered, gains = [], [], []
    for seed in range(_RUNS):
        rng = np.random.default_rng(seed)
        values = cities.draw(20_000, rng)
        truth = np.bincount(values, minlength=915) / len(values)
        histogram = _collect(_mechanism(name, bytes([seed]) * 32), values, rng)
        low, high = histogram.interval(0.95)
        error = ((histogram.frequencies - truth) ** 2).mean()
        ratios.append(error / histogram.mse_theory)
        covered.append(((low <= truth) & (truth <= high)).mean())
        gains.append(((histogram.refined - truth) ** 2).mean() / error)

    assert 0.8 <= float(np.mean(ratios)) <= 1.25
    assert 0.93 <= float(np.mean(covered)) <= 0.97
    assert max(gains) < 1
