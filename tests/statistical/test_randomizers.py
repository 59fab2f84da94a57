"""
Chi-square tests of every random draw of a device, with the production generator.

Each test has a fixed seed; over seeds it would fail by chance with probability 1e-7. Break the code
(a `<=` for a `<` in the draw, a dropped seed 0) and they fail.
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


@pytest.mark.parametrize(
    "weights", [ResponseWeights(true=3, other=1), ResponseWeights(true=2, other=1)]
)
def test_randomized_response_has_its_weights(weights: ResponseWeights) -> None:
    """Every true answer, every answer: 400,000 draws each."""
    rng = _generator(1)
    for truth in range(4):
        answers = weights.respond(np.full(400_000, truth), 4, rng)
        law = np.full(4, float(weights.other))
        law[truth] = weights.true
        assert _fits(np.bincount(answers, minlength=4), law)


def test_weights_off_by_two_percent_are_rejected() -> None:
    """The power of the test above."""
    rng = _generator(2)
    answers = ResponseWeights(true=306, other=100).respond(np.zeros(400_000, np.int64), 4, rng)

    assert not _fits(np.bincount(answers, minlength=4), np.array([3.0, 1, 1, 1]))


@pytest.mark.parametrize("item", [0, 7, 11])
def test_local_hashing_has_its_channel(item: int) -> None:
    """Cells of 300,000 reports of one item follow the exact channel, seed 0's row included."""
    mechanism = LocalHashing(12, family_for(12, 5), ResponseWeights.for_epsilon(1.5), b"n" * 32)
    reports = mechanism.randomize(np.full(300_000, item), _generator(3 + item))
    law = mechanism.channel(1.0).forward(np.eye(12)[item])
    cells = mechanism.tally(reports)

    assert (cells[law < 1e-12] == 0).all()
    assert _fits(cells[law >= 1e-12], law[law >= 1e-12])


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
    law = DummySpec.averaging(mean)
    counts = draw_dummy_counts(law, 400_000, _generator(22)) - law.per_user
    weights = np.array([EXTRA_WEIGHT_SUM - law.extra_weight, law.extra_weight], dtype=np.float64)

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


def test_reports_are_uniform_over_positions() -> None:
    """Positions of 40 reports over 20,000 permutations: a uniform matrix."""
    rng = _generator(40)
    batch = np.arange(40, dtype=np.uint8)[:, None]
    landed = np.zeros((40, 40), dtype=np.int64)
    for _ in range(20_000):
        landed[permute(batch, rng)[:, 0], np.arange(40)] += 1

    statistic = ((landed - 500) ** 2 / 500).sum()
    # A doubly stochastic table has 39² degrees of freedom, and this factor in its spread.
    assert stats.chi2.sf(statistic * 39 / 40, 39**2) > _FALSE_ALARM
