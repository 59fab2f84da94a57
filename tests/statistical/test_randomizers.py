"""
Chi-square tests of random draws of devices and the shuffler, with the production generator.

Each test has a fixed seed; over seeds it would fail by chance with probability 1e-7.
"""

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray
from randomgen import ChaCha
from scipy import stats

from common.mechanisms.hashing.local_hashing import LocalHashing, family_for
from common.mechanisms.weights import ResponseWeights
from common.task.dummy_spec import EXTRA_WEIGHT_SUM, DummySpec
from shuffler.permutation import permute
from user_agent.contribution import draw_dummy_counts

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
    """625 seeds times 5 buckets, all pairs equally likely."""
    mechanism = LocalHashing(12, family_for(12, 5), ResponseWeights.for_epsilon(1.5), b"n" * 32)
    dummies = mechanism.dummies(400_000, _generator(20))
    pairs = dummies["seed"].astype(np.int64) * 5 + dummies["bucket"]

    assert mechanism.family.seeds * 5 == 3125
    assert _fits(np.bincount(pairs, minlength=3125), np.ones(3125))


@pytest.mark.parametrize("mean", [0.3, 1.5, 4.999])
def test_a_fractional_number_of_dummies_has_its_distribution(mean: float) -> None:
    """400,000 users: certain dummies, and one more with its weight; .31 for .3 is rejected."""
    distribution = DummySpec.averaging(mean)
    counts = draw_dummy_counts(distribution, 400_000, _generator(22)) - distribution.per_user
    weights = np.array(
        [EXTRA_WEIGHT_SUM - distribution.extra_weight, distribution.extra_weight], dtype=np.float64
    )

    assert _fits(np.bincount(counts, minlength=2), weights)
    wrong = weights + np.array([-1, 1]) * EXTRA_WEIGHT_SUM / 100
    assert not _fits(np.bincount(counts, minlength=2), wrong)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_all_orders_are_equally_likely(size: int) -> None:
    """All n! orders of a small batch, 1,000 times each on average."""
    rng = _generator(30 + size)
    batch = np.arange(size, dtype=np.uint8)[:, None]
    orders = int(np.prod(np.arange(1, size + 1)))
    seen = Counter(permute(batch, rng).tobytes() for _ in range(1000 * orders))

    assert orders == len(seen)
    assert _fits(np.array(list(seen.values())), np.ones(orders))
