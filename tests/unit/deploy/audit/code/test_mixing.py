"""Whether batches that are mixed otherwise than they were drawn are seen."""

import numpy as np
import pytest

from deploy.audit.code.mixing import play_mixing
from deploy.audit.code.replay import (
    Recording,
    answer_ordered,
    follows,
    ordered_at_once,
    ordered_in_buckets,
)
from deploy.audit.faults.catalogue import FAULTS
from deploy.audit.laws.panel import panel
from deploy.audit.run import rehearse
from tests.support.audits import audited


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["od-hp", "sageo"])
def test_honest_mixing_holds(protocol: str) -> None:
    """
    Of a task that lets the shuffler permute alone, and of one that lets it drop and add.

    Fails by chance with probability 4e-6 over seeds.
    """
    [task] = [task for task in (audited().task, panel()[-1]) if task.protocol == protocol]
    [row] = play_mixing(audited(task), np.random.default_rng(1)).findings

    assert row.passed, row.sentence


@pytest.mark.slow
@pytest.mark.parametrize("name", [f.name for f in FAULTS.values() if f.scenario == "mixing"])
def test_what_is_planted_is_seen(name: str) -> None:
    """By the check that is named for it."""
    [rehearsed] = rehearse(audited(), seed=2, faults=[FAULTS[name]], processes=1)

    assert rehearsed.caught, rehearsed.said


def test_an_order_in_memory_is_the_one_that_was_drawn() -> None:
    """Of as many reports, and drawn once."""
    source = Recording(np.random.PCG64(1))
    drawn = source.permutation(9)

    again = ordered_at_once(source, 9)
    assert again is not None
    assert (drawn == again).all()
    assert ordered_at_once(source, 8) is None
    source.permutation(9)
    assert ordered_at_once(source, 9) is None


def test_an_answer_in_order_is_what_was_drawn_with_padding_behind_it() -> None:
    """Of a known order; none where no order was drawn, or reports are too many."""
    source, reports = Recording(np.random.PCG64(1)), np.array([(1,), (2,)], dtype=[("item", "u1")])
    assert answer_ordered(source, [reports], 3) is None
    source.orders.append(np.array([2, 0, 1]))

    found = answer_ordered(source, [reports[:1], reports[1:]], 3)
    assert found is not None
    assert [255, 1, 2] == found["item"].tolist()
    assert answer_ordered(source, [reports, reports], 3) is None


def test_an_order_in_buckets_is_that_of_throws_and_buckets() -> None:
    """Reports 1 and 2 are thrown into the first of two buckets, 0 and 3 into the second."""
    source = Recording(np.random.PCG64(1))
    source.integers_drawn += [np.array([1, 0]), np.array([0, 1])]
    source.orders += [np.array([1, 0]), np.array([0, 1])]

    order = ordered_in_buckets(source, 4)
    assert order is not None
    assert [2, 1, 0, 3] == order.tolist()
    assert ordered_in_buckets(source, 5) is None


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([0, 1, 2, 3], True),
        ([0, 2, 5, -1], True),
        ([1, 0, 2, 3], False),
        ([0, 2, -1, 5], False),
    ],
    ids=["all", "some dropped, one added", "two swapped", "one added among users"],
)
def test_a_batch_follows_an_order_that_puts_users_back_in_theirs(
    before: list[int],
    expected: bool,  # noqa: FBT001  # what must come out
) -> None:
    """Users' reports as they lay there, and added ones behind them."""
    order = np.array([2, 0, 3, 1])

    assert expected is follows(np.array(before)[order], order)
    assert not follows(np.array(before), order[:3])
