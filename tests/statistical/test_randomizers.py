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
from common.protocols import PROTOCOLS
from common.task_digest import TaskDigest
from deploy.tasks.value_parser import value_of
from tests.support.protocol_tasks import protocol_task
from user_agent.contribution import Contributor

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


@pytest.mark.parametrize(
    "name", [row.name for row in PROTOCOLS.values() if row.dummy_distributions]
)
def test_submissions_of_every_value_are_equally_long(name: str) -> None:
    """
    Numbers of sealed reports have the task's distribution for each value, and no other lengths.

    For all protocols together it fails by chance with probability below 1e-6.
    """
    task, rng, users = protocol_task(name), _generator(40), 400
    device, chances = Contributor(task, TaskDigest(bytes(32))), task.dummies.length_probabilities()
    device._seal_report = device._seal_envelope = bytes
    values = [value_of(task, item) for item in range(task.domain_size)]
    sizes = [[len(device.prepare(value, rng).leaves) for _ in range(users)] for value in values]
    cells = np.searchsorted(task.lengths, sizes)
    assert np.isin(sizes, task.lengths).all()
    # The longest lengths together have a probability of .1 or more.
    last = np.flatnonzero(np.cumsum(chances[::-1])[::-1] >= 0.1)[-1]
    expected = users * np.append(chances[:last], chances[last:].sum())
    observed = [np.bincount(np.minimum(row, last), minlength=last + 1) for row in cells]
    statistic = ((observed - expected) ** 2 / expected).sum()

    assert expected.min() >= 25
    assert last == 0 or stats.chi2.sf(statistic, len(cells) * last) > _FALSE_ALARM
