import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.analyzer.sentinels import (
    SentinelMatches,
    check_sentinels,
    match_part,
    without_sentinels,
)
from shuffledp.analyzer.storage.task_table import Sentinel
from shuffledp.common.errors import SuspectBatchError, UnusableBatchError
from shuffledp.common.messages.batch import BatchId, BatchManifest
from shuffledp.common.messages.inclusion_proof import leaf
from shuffledp.common.task.shuffler_spec import BinomialNoise, ShufflerSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from tests.support.leaves import some_leaves
from tests.support.tasks import SHUFFLER_NOISE, published

_KEEPS = published(n_min=15).task
_SAMPLES = published(
    **SHUFFLER_NOISE,
    n_min=1000,
    target_size=2000,
    shuffler=ShufflerSpec(keep_weight=2**31, noise=BinomialNoise(trials=4000)),
).task


def _matches(positions: Sequence[int | None]) -> SentinelMatches:
    """Return sentinels of one report each, in the order of sending, with their positions."""
    leaves = some_leaves(len(positions))
    return SentinelMatches(
        sentinels=tuple(Sentinel(leaves=(leaf,), acknowledged=True) for leaf in leaves),
        positions={
            leaf: position
            for leaf, position in zip(leaves, positions, strict=True)
            if position is not None
        },
    )


def _shuffled(count: int, seed: int) -> list[int | None]:
    return list(np.random.default_rng(seed).permutation(10 * count)[:count].tolist())


@pytest.mark.parametrize("count", [0, 1, 12, 13, 50, 170, 400, 1000])
def test_an_honest_shuffler_passes(count: int) -> None:
    """Any number of sentinels passes."""
    for seed in range(3):  # fails by chance with probability 3e-9 at most over seeds
        check_sentinels(_matches(_shuffled(count, seed)), _KEEPS)


@pytest.mark.parametrize("sent", [1, 30, 31, 59, 100, 250])
def test_the_false_alarm_rate_of_a_sampler_is_as_stated(sent: int) -> None:
    """The exact probability is at most 1e-9, and not far below it."""
    suspect = [arrived for arrived in range(sent + 1) if _fails_by_number(arrived, sent)]
    chance = Fraction(sum(math.comb(sent, arrived) for arrived in suspect), 2**sent)

    assert chance <= Fraction(1, 10**9)
    assert sent < 59 or chance > Fraction(1, 10**10)


def _fails_by_number(arrived: int, sent: int) -> bool:
    """Return whether `arrived` of `sent` sentinels are too few or too many for a share of 1/2."""
    try:
        check_sentinels(_matches([*_shuffled(arrived, 1), *[None] * (sent - arrived)]), _SAMPLES)
    except SuspectBatchError as error:
        return "reports of sentinels arrived" in str(error)
    return False


@pytest.mark.parametrize(
    ("task", "arrived", "sent", "message"),
    [
        (_KEEPS, 49, 50, "1 of 50 sentinels are missing"),
        *(
            (_SAMPLES, arrived, 200, f"{arrived} of 200 reports of sentinels arrived")
            for arrived in (0, 30, 170, 200)
        ),
    ],
)
def test_an_improbable_number_of_sentinels_fails(
    task: Task, arrived: int, sent: int, message: str
) -> None:
    """One missing where everything is kept; too few or too many where half of it is."""
    with pytest.raises(SuspectBatchError, match=message):
        check_sentinels(_matches([*_shuffled(arrived, 1), *[None] * (sent - arrived)]), task)


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize(("count", "suspect"), [(12, False), (13, True), (50, True), (1000, True)])
def test_a_kept_or_reversed_order_fails(count: int, step: int, *, suspect: bool) -> None:
    """Thirteen sentinels suffice, since 2/13! is below 1e-9."""
    positions = list(range(5, 5 + 3 * count, 3))[::step]
    improbable = "after a uniform permutation: Kendall's tau"
    with pytest.raises(SuspectBatchError, match=improbable) if suspect else nullcontext():
        check_sentinels(_matches(positions), _KEEPS)


def test_sentinels_count_neither_as_users_nor_as_reports() -> None:
    """A planned one that did not arrive counts as a user only where reports are sampled."""
    matches = _matches(_shuffled(10, 1))
    planned = Sentinel(leaves=(bytes(32),), acknowledged=False)
    matches = replace(matches, sentinels=(*matches.sentinels, planned))
    for task, n_users, left in ((_KEEPS, 25, 15), (_SAMPLES, 1011, 1000)):
        manifest = BatchManifest(
            task_digest=TaskDigest(bytes(32)),
            batch_id=BatchId(bytes(16)),
            n_users=n_users,
            n_reports=200,
        )
        found = without_sentinels(manifest, matches, task)

        assert (left, 190) == (found.n_users, found.n_reports)
        with pytest.raises(UnusableBatchError, match=f"has {left - 1} users besides"):
            without_sentinels(replace(manifest, n_users=n_users - 1), matches, task)


_SIZE = 60
_REPORTS = [bytes([number]) * _SIZE for number in range(40)]


def _sentinel(*numbers: int, acknowledged: bool = True) -> Sentinel:
    return Sentinel(
        leaves=tuple(leaf(_REPORTS[number]) for number in numbers), acknowledged=acknowledged
    )


def _matched(reports: list[bytes], *sentinels: Sentinel) -> SentinelMatches:
    """Match a batch in parts of seven reports."""
    leaves = [leaf for sentinel in sentinels for leaf in sentinel.leaves]
    parts = [b"".join(reports[start : start + 7]) for start in range(0, len(reports), 7)]
    return SentinelMatches.joined(sentinels, [match_part(part, _SIZE, leaves) for part in parts])


def test_sentinels_are_found_where_they_first_arrive() -> None:
    """Positions count from the batch's first report; copies in the same and another part count."""
    reports = [*_REPORTS[:30], _REPORTS[8], _REPORTS[8], _REPORTS[3], _REPORTS[29]]
    matches = _matched(reports, _sentinel(3, 17), _sentinel(8, 29))

    places = {leaf(_REPORTS[place]): place for place in (3, 8, 17, 29)}
    assert places == matches.positions
    assert (2, 0, 4) == (matches.n_acknowledged, matches.n_missing, matches.n_repeated)
    assert (4, 4) == matches.sent_and_arrived()
    assert [3, 8] == matches.order()


def test_a_task_without_sentinels_has_none_among_its_users() -> None:
    """No part was matched."""
    matches = SentinelMatches.joined([], [])

    assert [] == matches.counted(sampled=False) == matches.counted(sampled=True)


def test_incomplete_and_planned_sentinels_are_counted_upward() -> None:
    """
    Sentinel 3 lacks a report. Of the planned ones 2 arrived, and 35 may never have been sent: it is
    not missing, and counts as a user's submission only where reports are sampled.
    """
    planned = (_sentinel(35, acknowledged=False), _sentinel(2, acknowledged=False))
    matches = _matched(_REPORTS[:10], _sentinel(3, 36), *planned)

    assert (1, 1, (2, 1)) == (matches.n_acknowledged, matches.n_missing, matches.sent_and_arrived())
    numbers = [len(matches.counted(sampled=sampled)) for sampled in (True, False)]
    assert [3, 2] == numbers
    assert 2 == len(matches.positions)


def test_sentinels_leave_the_counts_of_lengths() -> None:
    """One of two sentinels of two reports, and one of three."""
    task = published(n_min=15, dummies_per_user=1.3).task
    matches = _matched(_REPORTS[:10], _sentinel(3, 4), _sentinel(5, 6, 7))
    manifest = BatchManifest(
        task_digest=TaskDigest(bytes(32)),
        batch_id=BatchId(bytes(16)),
        n_users=30,
        n_reports=68,
        by_length=(22, 8),
    )
    found = without_sentinels(manifest, matches, task)

    assert (28, 63, (21, 7)) == (found.n_users, found.n_reports, found.by_length)


def test_a_sentinel_stands_at_its_first_report() -> None:
    """The order is that of sending, without missing sentinels."""
    mixed = [_REPORTS[place] for place in np.random.default_rng(1).permutation(30)]
    matches = _matched(mixed, _sentinel(5, 6), _sentinel(38), _sentinel(7))

    first = min(mixed.index(_REPORTS[5]), mixed.index(_REPORTS[6]))
    assert [first, mixed.index(_REPORTS[7])] == matches.order()
