from contextlib import nullcontext

import numpy as np
import pytest

from analyzer.batch_counts import BatchCounts, add_batch_refusals, check_counts, open_and_count
from common.crypto.hpke import report_context
from common.errors import SuspectBatchError
from common.mechanisms.base import Reports, null_reports
from common.mechanisms.registry import mechanism_of
from common.task_digest import TaskDigest
from deploy.audit.harness.analyzer_core import InlinePool
from tests.support.tasks import published

_CASE = published()
_MECHANISM = mechanism_of(_CASE.task)
_SEAL = _CASE.analyzer_key.public_key().sealer(report_context(_CASE.signed.digest()))


def _sealed(reports: Reports) -> list[bytes]:
    return [_SEAL(report.tobytes()) for report in reports]


def _counted(sealed: list[bytes], *, chunk: int = 7) -> BatchCounts:
    chunks = [b"".join(sealed[start : start + chunk]) for start in range(0, len(sealed), chunk)]
    return open_and_count(
        chunks,
        _CASE.task,
        _CASE.signed.digest(),
        _MECHANISM,
        pool=InlinePool(),
        key=_CASE.analyzer_key,
    )


@pytest.mark.parametrize("tally_size", [10, 2**19])
def test_every_report_is_counted_once(monkeypatch: pytest.MonkeyPatch, tally_size: int) -> None:
    """Cells are those of the plaintexts, in one part or in several."""
    monkeypatch.setattr("analyzer.batch_counts._TALLY_SIZE", tally_size)
    reports = _MECHANISM.dummies(53, np.random.default_rng(7))
    counts = _counted(_sealed(reports))

    assert 53 == counts.counted
    assert {"repeated": 0, "unreadable": 0, "malformed": 0} == counts.refused
    np.testing.assert_array_equal(_MECHANISM.tally(reports), counts.cells)


def test_refused_and_null_reports_are_counted_apart() -> None:
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
    counts = _counted([*sealed, *repeats, flipped, elsewhere, bytes(60), *padding])

    assert (10, 3) == (counts.counted, counts.null)
    assert {"repeated": 3, "unreadable": 3, "malformed": 2} == counts.refused


def test_chunks_without_a_valid_report_are_skipped() -> None:
    """One chunk holds repeats only, another unreadable reports only."""
    sealed = _sealed(_MECHANISM.dummies(3, np.random.default_rng(6)))
    counts = _counted([*sealed, *sealed, bytes(60), bytes(59) + b"x", bytes(59) + b"y"], chunk=3)

    assert (3, 3, 3) == (counts.counted, counts.refused["repeated"], counts.refused["unreadable"])


@pytest.mark.parametrize(
    ("share", "suspect"), [(0.0, True), (0.04, True), (0.05, False), (1.0, False)]
)
def test_too_many_refused_reports_fail(share: float, *, suspect: bool) -> None:
    """One of twenty is 5 %; a sentinel's second copy counts too."""
    opened = _counted(_sealed(_MECHANISM.dummies(19, np.random.default_rng(7))))
    counts = add_batch_refusals(opened, _CASE.task, n_users=10, n_repeated=1)
    many = "1 of the batch's 20 reports were refused"
    with pytest.raises(SuspectBatchError, match=many) if suspect else nullcontext():
        check_counts(counts, 20, share)
