import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyzer.batch_counts import check_counts, check_lengths, refuse_excess_padding
from common.crypto.hpke import report_context
from common.errors import SuspectBatchError
from common.mechanisms.base import Reports, null_reports
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BatchId, BatchManifest
from common.task.dummy_spec import DummySpec
from common.task_digest import TaskDigest
from tests.support.count_jobs import count, divide_finely, job_over
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
    elsewhere = _CASE.analyzer_key.public_key().seal(
        bytes(12), report_context(TaskDigest(bytes(32)))
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
    counts = refuse_excess_padding(opened, _CASE.task, _batch(20))
    many = "1 of the batch's 20 reports were refused"
    with pytest.raises(SuspectBatchError, match=many) if suspect else nullcontext():
        check_counts(counts, 20, share)


@pytest.mark.parametrize(("short", "suspect"), [(0, False), (4.5, False), (5.5, True)])
def test_too_few_long_submissions_are_suspect(
    monkeypatch: pytest.MonkeyPatch, short: float, *, suspect: bool
) -> None:
    """By more than five standard deviations, as if somebody had dropped them with their dummies."""
    monkeypatch.setattr(DummySpec, "lengths", property(lambda _: (0, 5)))
    monkeypatch.setattr(DummySpec, "length_probabilities", lambda _: np.array([0.9, 0.1]))
    task = replace(_CASE.task, assumed_honest_fraction=0.9)
    long = math.floor(9000 * 0.1 - short * math.sqrt(9000 * 0.1 * 0.9))
    batch = replace(_batch(20), n_users=10_000, by_length=(10_000 - long, long))
    message = r"\d+ of 10000 submissions have 6 reports; of 9000 honest users' about 900 have"
    with pytest.raises(SuspectBatchError, match=message) if suspect else nullcontext():
        check_lengths(batch, task)
