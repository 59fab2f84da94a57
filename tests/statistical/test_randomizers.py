"""
Chi-square tests of random draws of devices, with the production generator.

Each test has a fixed seed; over seeds it fails by chance with probability 1e-7.
"""

import numpy as np
import pytest
from randomgen import ChaCha
from scipy import stats

from shuffledp.common.protocols import PROTOCOLS
from shuffledp.common.task.kinds import ITEM_KINDS
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.tasks.value_parser import value_of
from shuffledp.user_agent.contribution import Contributor
from tests.support.protocol_tasks import protocol_task


@pytest.mark.parametrize(
    "name",
    [row.name for row in PROTOCOLS.values() if row.dummy_distributions and row.kind in ITEM_KINDS],
)
@pytest.mark.parametrize("step", [33, pytest.param(1, marks=pytest.mark.slow)])
def test_submissions_of_every_value_are_equally_long(name: str, step: int) -> None:
    """Numbers of reports have the task's distribution for each value; fast: each 33rd."""
    task, users = protocol_task(name), 400
    rng = np.random.Generator(ChaCha(key=40, rounds=20))
    device, chances = Contributor(task, TaskDigest(bytes(32))), task.dummies.length_probabilities()
    device._seal_report = device._seal_envelope = bytes
    values = [value_of(task, item) for item in range(0, task.domain_size, step)]
    sizes = [[len(device.prepare(value, rng).leaves) for _ in range(users)] for value in values]
    cells = np.searchsorted(task.lengths, sizes)
    assert np.isin(sizes, task.lengths).all()
    # The longest lengths together have a probability of .1 or more.
    last = np.flatnonzero(np.cumsum(chances[::-1])[::-1] >= 0.1)[-1]
    expected = users * np.append(chances[:last], chances[last:].sum())
    observed = [np.bincount(np.minimum(row, last), minlength=last + 1) for row in cells]
    statistic = ((observed - expected) ** 2 / expected).sum()

    assert expected.min() >= 25
    assert last == 0 or stats.chi2.sf(statistic, len(cells) * last) > 1e-7
