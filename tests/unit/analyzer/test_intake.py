import numpy as np
import pytest

from analyzer.intake import Intake, RepeatFilter, open_and_count
from common.crypto.hpke import report_context
from common.mechanisms.base import Reports, null_reports
from common.mechanisms.registry import mechanism_of
from common.task_digest import TaskDigest
from deploy.audit.harness.pools import InlinePool
from tests.support.tasks import published

_CASE = published()
_MECHANISM = mechanism_of(_CASE.task)
_SEAL = _CASE.analyzer_key.public_key().sealer(report_context(_CASE.signed.digest()))


def _sealed(reports: Reports) -> list[bytes]:
    return [_SEAL(report.tobytes()) for report in reports]


def _take_in(sealed: list[bytes], *, chunk: int = 7) -> Intake:
    chunks = [b"".join(sealed[start : start + chunk]) for start in range(0, len(sealed), chunk)]
    return open_and_count(
        chunks,
        _CASE.task,
        _CASE.signed.digest(),
        _MECHANISM,
        pool=InlinePool(),
        key=_CASE.analyzer_key,
    )


@pytest.mark.parametrize("tallied_at_once", [10, 2**19])
def test_every_report_is_counted_once(
    monkeypatch: pytest.MonkeyPatch, tallied_at_once: int
) -> None:
    """Cells are those of the plaintexts, in one part or in several."""
    monkeypatch.setattr("analyzer.intake._TALLIED_AT_ONCE", tallied_at_once)
    reports = _MECHANISM.dummies(53, np.random.default_rng(7))
    intake = _take_in(_sealed(reports))

    assert 53 == intake.counted
    assert {"repeated": 0, "unreadable": 0, "malformed": 0} == intake.refused
    np.testing.assert_array_equal(_MECHANISM.tally(reports), intake.cells)


def test_refused_and_null_reports_are_counted_apart() -> None:
    """
    Repeats in the same chunk and in another; a changed bit, another task's report and random bytes,
    which do not open; a seed and a bucket out of range, which open; and padding.
    """
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
    intake = _take_in([*sealed, *repeats, flipped, elsewhere, bytes(60), *padding])

    assert (10, 3) == (intake.counted, intake.null)
    assert {"repeated": 3, "unreadable": 3, "malformed": 2} == intake.refused


def test_chunks_without_a_valid_report_are_skipped() -> None:
    """All repeats, or all unreadable."""
    sealed = _sealed(_MECHANISM.dummies(3, np.random.default_rng(6)))
    intake = _take_in([*sealed, *sealed, bytes(60), bytes(59) + b"x", bytes(59) + b"y"], chunk=3)

    assert (3, 3, 3) == (intake.counted, intake.refused["repeated"], intake.refused["unreadable"])


def test_repeats_are_dropped_as_by_a_set() -> None:
    """3000 reports, many of them equal, in chunks of many sizes."""
    rng = np.random.default_rng(1)
    reports = [bytes(59) + bytes([n]) for n in range(200)] + [rng.bytes(60) for _ in range(800)]
    repeats, seen = RepeatFilter(60), set[bytes]()
    for size in (1, 2, 5, 100, 1000, 1892):
        sent = [reports[int(n)] for n in rng.integers(0, 1000, size)]
        expected = []
        for report in sent:
            if report not in seen:
                seen.add(report)
                expected.append(report)
        assert b"".join(expected) == repeats.without(b"".join(sent))


def test_reports_that_differ_in_the_last_bit_are_kept() -> None:
    """A second copy of either is dropped."""
    repeats = RepeatFilter(60)
    chunk = bytes(60) + bytes(59) + b"\1"

    assert chunk == repeats.without(chunk)
    assert b"" == repeats.without(chunk)
    assert b"" == repeats.without(b"")
