import math
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.analyzer import batch_counts
from shuffledp.common.crypto.hpke import report_context
from shuffledp.common.errors import SuspectBatchError
from shuffledp.common.mechanisms.base import Reports, is_null, null_reports
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.messages.batch import BatchId, BatchManifest
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.common.task.task import Task
from shuffledp.common.task.uniform_dummies import NegativeBinomialDummies
from shuffledp.common.task_digest import TaskDigest
from tests.support.changed_tasks import changed
from tests.support.count_jobs import count, divide_finely, job_over
from tests.support.protocol_tasks import protocol_task
from tests.support.tasks import published

_CASE = published()
_MECHANISM = mechanism_of(_CASE.task)
_SEAL = _CASE.analyzer_key.public_key().sealer(report_context(_CASE.signed.digest()))


def _batch(n_reports: int) -> BatchManifest:
    """Return the manifest of ten users."""
    return BatchManifest(
        task_digest=_CASE.signed.digest(),
        batch_id=BatchId(bytes(16)),
        n_users=10,
        n_reports=n_reports,
    )


def _sealed(reports: Reports) -> list[bytes]:
    return [_SEAL(report.tobytes()) for report in reports]


@pytest.mark.parametrize("fine", [False, True])
async def test_every_report_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fine: bool
) -> None:
    """Cells are those of the plaintexts, in one slice or in several."""
    if fine:
        divide_finely(monkeypatch)
    reports = _MECHANISM.dummies(153, np.random.default_rng(7))
    job = job_over(tmp_path, _CASE, _sealed(reports))
    counts = await count(job)

    assert (16 if fine else 1) == job.n_ranges
    assert fine == (job.n_slices > 1)
    assert 153 == counts.counted
    assert {"repeated": 0, "unreadable": 0, "malformed": 0} == counts.refused
    np.testing.assert_array_equal(_MECHANISM.tally(reports), counts.cells)


@pytest.mark.parametrize("n_parts", [1, 2, 7])
async def test_refused_and_null_reports_are_counted_apart(tmp_path: Path, n_parts: int) -> None:
    """Repeats, unreadable and malformed reports, and padding have separate counts."""
    reports = _MECHANISM.dummies(12, np.random.default_rng(2))
    reports["bucket"][1] = 13
    reports["seed"][2] = 2**63
    sealed = _sealed(reports)
    flipped = bytes([sealed[0][0] ^ 1]) + sealed[0][1:]
    elsewhere = _CASE.analyzer_key.public_key().sealer(report_context(TaskDigest(bytes(32))))(
        bytes(12)
    )
    padding = _sealed(null_reports(3, _MECHANISM.report_dtype))
    repeats = [sealed[0], sealed[9], sealed[9]]
    batch = [*sealed, *repeats, flipped, elsewhere, bytes(60), *padding]
    counts = await count(job_over(tmp_path, _CASE, batch, n_parts))

    assert (10, 3) == (counts.counted, counts.null)
    assert {"repeated": 3, "unreadable": 3, "malformed": 2} == counts.refused


async def test_slices_without_a_valid_report_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One part holds repeats only, another unreadable reports only; most slices hold none."""
    divide_finely(monkeypatch)
    sealed = _sealed(_MECHANISM.dummies(3, np.random.default_rng(6)))
    unreadable = [bytes(60), bytes(59) + b"x", bytes(59) + b"y"]
    counts = await count(job_over(tmp_path, _CASE, [*sealed, *sealed, *unreadable], 3))

    assert (3, 3, 3) == (counts.counted, counts.refused["repeated"], counts.refused["unreadable"])


@pytest.mark.parametrize(
    ("share", "suspect"), [(0.0, True), (0.04, True), (0.05, False), (1.0, False)]
)
async def test_too_many_refused_reports_fail(
    tmp_path: Path, share: float, *, suspect: bool
) -> None:
    """One of twenty is 5 %: a second copy."""
    sealed = _sealed(_MECHANISM.dummies(19, np.random.default_rng(7)))
    opened = await count(job_over(tmp_path, _CASE, [*sealed, sealed[4]]))
    counts = batch_counts.refuse_excess_padding(opened, _CASE.task, _batch(20))
    many = "1 of the batch's 20 reports were refused"
    with pytest.raises(SuspectBatchError, match=many) if suspect else nullcontext():
        batch_counts.check_counts(counts, 20, share)


@pytest.mark.parametrize(("short", "suspect"), [(0, False), (4.5, False), (5.5, True)])
def test_too_few_long_submissions_are_suspect(
    monkeypatch: pytest.MonkeyPatch, short: float, *, suspect: bool
) -> None:
    """By more than five standard deviations, as if somebody had dropped them with their dummies."""
    own = type(_CASE.task.dummies)
    monkeypatch.setattr(own, "lengths", property(lambda _: (0, 5)))
    monkeypatch.setattr(own, "length_probabilities", lambda _: np.array([0.9, 0.1]))
    task = replace(_CASE.task, assumed_honest_fraction=0.9)
    long = math.floor(9000 * 0.1 - short * math.sqrt(9000 * 0.1 * 0.9))
    batch = replace(_batch(20), n_users=10_000, by_length=(10_000 - long, long))
    message = r"\d+ of 10000 submissions have 6 or more reports; about 900 of 9000 honest users"
    with pytest.raises(SuspectBatchError, match=message) if suspect else nullcontext():
        batch_counts.check_lengths(batch, task)


_MANY: Final = NegativeBinomialDummies(per_user=1, trials=2, extra_weight=2**31, most=60)


@cache
def _many_task() -> Task:
    return changed(protocol_task("od-hp"), dummies=_MANY, assumed_honest_fraction=1.0)


def _lengths_batch(numbers: NDArray[np.int64]) -> BatchManifest:
    users = int(numbers.sum())
    return replace(_batch(20), n_users=users, by_length=tuple(numbers.tolist()))


def test_honest_lengths_are_suspect_at_most_as_often_as_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 61 lengths most are rare. Seed 5; fails by chance with probability 1e-7 over seeds."""
    monkeypatch.setattr(batch_counts, "_FALSE_ALARM", 0.01)
    passed = 0
    for numbers in np.random.default_rng(5).multinomial(5000, _MANY.length_probabilities(), 1000):
        with suppress(SuspectBatchError):
            batch_counts.check_lengths(_lengths_batch(numbers), _many_task())
            passed += 1

    assert passed >= 970


@pytest.mark.parametrize("by_length", [(), (10,)])
def test_one_length_is_never_suspect(by_length: tuple[int, ...]) -> None:
    """A manifest need not count it."""
    batch_counts.check_lengths(replace(_batch(20), by_length=by_length), _CASE.task)


@pytest.mark.parametrize(("users", "fewest"), [(100, 4), (500, 8), (20_000, 14)])
def test_dropped_long_submissions_are_suspect(users: int, fewest: int) -> None:
    """Even where each of their lengths alone is too rare to be missed."""
    chances = _MANY.length_probabilities()
    kept = np.where(np.array(_many_task().lengths) < fewest, np.rint(users * chances), 0)
    rarest = (1 - chances[fewest - 2 :]) ** kept.sum()
    message = (
        rf"\A0 of \d+ submissions have {fewest} or more reports; about \d+ of \d+ honest users"
    )

    assert rarest.min() > 3e-7 / 60
    with pytest.raises(SuspectBatchError, match=message):
        batch_counts.check_lengths(_lengths_batch(kept.astype(np.int64)), _many_task())


def test_more_padding_than_the_lengths_allow_is_refused() -> None:
    """Uniform dummies need none, unless they have too many lengths to show; AUE's may."""
    items = ItemDummies(trials=30, extra_weight=2**28, most=8)
    for dummies, most in ((_MANY, 0), (replace(_MANY, most=600), 2), (items, 8)):
        task = changed(protocol_task("aue" if dummies is items else "od-hp"), dummies=dummies)
        counts = batch_counts.BatchCounts.joined(
            np.zeros(1, dtype=np.int64),
            [batch_counts.SliceCounts(50, 100, 0, 0)],
            n_repeated=0,
            open_seconds=0,
        )
        found = batch_counts.refuse_excess_padding(counts, task, _batch(10_000))

        assert (10 * most, 100 - 10 * most) == (found.null, found.refused["malformed"])


def test_all_null_reports_that_rooms_can_hold_are_accepted() -> None:
    """Also if every room is the largest and empty; not one more. Seed 9."""
    task = protocol_task("signed")
    largest, rng = 10 * (task.lengths[-1] - 1), np.random.default_rng(9)
    sent = [(largest, largest), (largest + 1, largest)]
    for _ in range(300):
        drawn = [task.dummies.draw(mechanism_of(task), 1, rng)[1] for _ in range(10)]
        null = sum(int(is_null(reports).sum()) for reports in drawn)
        sent.append((null, sum(map(len, drawn))))
    for null, added in sent:
        counts = batch_counts.BatchCounts.joined(
            np.zeros(1, dtype=np.int64),
            [batch_counts.SliceCounts(10 + max(0, added - null), null, 0, 0)],
            n_repeated=0,
            open_seconds=0,
        )
        found = batch_counts.refuse_excess_padding(counts, task, _batch(10 + added))
        assert (min(null, largest), max(0, null - largest)) == (found.null, found.n_refused)


def test_too_few_of_the_largest_rooms_are_suspect() -> None:
    """Six deviations; honest batches pass. Seed 10; fails by chance with probability 1e-4."""
    task = protocol_task("signed")
    chances, users = task.dummies.length_probabilities(), 10_000
    for numbers in np.random.default_rng(10).multinomial(users, chances, 300):
        batch_counts.check_lengths(_lengths_batch(numbers), task)
    numbers = np.rint(users * chances).astype(np.int64)
    short = math.ceil(6 * math.sqrt(users * chances[-1] * (1 - chances[-1])))
    numbers[[-2, -1]] += [short, -short]
    with pytest.raises(SuspectBatchError, match=r"of 10000 submissions have 7 or more reports"):
        batch_counts.check_lengths(_lengths_batch(numbers), task)
