"""
Chi-square tests of random draws of devices, with the production generator.

Each test has a fixed seed; over seeds it fails by chance with probability 1e-7.
"""

import numpy as np
import pytest
from numpy.typing import NDArray
from randomgen import ChaCha
from scipy import stats

from common.mechanisms.hashing.local_hashing import LocalHashing, family_for
from common.mechanisms.weights import ResponseWeights

_FALSE_ALARM = 1e-7


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(ChaCha(key=seed, rounds=20))


def _fits(observed: NDArray[np.int64], probabilities: NDArray[np.float64]) -> bool:
    expected = probabilities / probabilities.sum() * observed.sum()
    return bool(stats.chisquare(observed, expected).pvalue > _FALSE_ALARM)


@pytest.mark.parametrize("item", [0, 7, 11])
def test_local_hashing_has_its_channel(item: int) -> None:
    """Cells of 300,000 reports of one item follow the exact channel, seed 0's row included."""
    mechanism = LocalHashing(12, family_for(12, 5), ResponseWeights.for_epsilon(1.5), b"n" * 32)
    reports = mechanism.randomize(np.full(300_000, item), _generator(3 + item))
    distribution = mechanism.channel(1.0).forward(np.eye(12)[item])
    cells = mechanism.tally(reports)

    assert (cells[distribution < 1e-12] == 0).all()
    assert _fits(cells[distribution >= 1e-12], distribution[distribution >= 1e-12])


def test_dummies_are_uniform_over_seeds_and_buckets() -> None:
    """All pairs of 625 seeds and 5 buckets are equally likely."""
    mechanism = LocalHashing(12, family_for(12, 5), ResponseWeights.for_epsilon(1.5), b"n" * 32)
    dummies = mechanism.dummies(400_000, _generator(20))
    pairs = dummies["seed"].astype(np.int64) * 5 + dummies["bucket"]

    assert mechanism.family.seeds * 5 == 3125
    assert _fits(np.bincount(pairs, minlength=3125), np.ones(3125))
