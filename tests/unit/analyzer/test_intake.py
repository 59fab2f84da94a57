import numpy as np

from analyzer.intake import Intake, open_and_count
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


def test_every_report_is_counted_once() -> None:
    """Cells are those of the plaintexts."""
    reports = _MECHANISM.dummies(50, np.random.default_rng(1))
    intake = _take_in(_sealed(reports))

    assert 50 == intake.counted
    assert {"repeated": 0, "unreadable": 0, "malformed": 0} == intake.refused
    np.testing.assert_array_equal(_MECHANISM.tally(reports), intake.cells)


def test_counting_a_few_at_a_time_counts_the_same() -> None:
    """Cells of all parts add up, the last part being what is left."""
    reports = _MECHANISM.dummies(53, np.random.default_rng(7))
    chunks = [b"".join(_sealed(reports[start : start + 5])) for start in range(0, 53, 5)]
    intake = open_and_count(
        chunks,
        _CASE.task,
        _CASE.signed.digest(),
        _MECHANISM,
        pool=InlinePool(),
        key=_CASE.analyzer_key,
        tallied_at_once=10,
    )

    assert 53 == intake.counted
    np.testing.assert_array_equal(_MECHANISM.tally(reports), intake.cells)


def test_repeated_ciphertexts_are_dropped_wherever_they_stand() -> None:
    """In the same chunk and in another; the first one counts."""
    sealed = _sealed(_MECHANISM.dummies(10, np.random.default_rng(2)))
    intake = _take_in([*sealed, sealed[0], sealed[9], sealed[9]])

    assert (10, 3) == (intake.counted, intake.refused["repeated"])


def test_what_does_not_open_is_refused_by_cause() -> None:
    """A changed bit, another task's report, random bytes."""
    sealed = _sealed(_MECHANISM.dummies(4, np.random.default_rng(3)))
    flipped = bytes([sealed[0][0] ^ 1]) + sealed[0][1:]
    elsewhere = _CASE.analyzer_key.public_key().seal(
        bytes(12), report_context(TaskDigest(bytes(32)))
    )
    intake = _take_in([*sealed, flipped, elsewhere, bytes(60)])

    assert (4, 3) == (intake.counted, intake.refused["unreadable"])


def test_what_no_device_makes_is_refused_by_cause() -> None:
    """A seed beyond the field or a bucket beyond g opens, and is not counted."""
    reports = _MECHANISM.dummies(5, np.random.default_rng(4))
    reports["bucket"][1] = 13
    reports["seed"][2] = 2**63
    intake = _take_in(_sealed(reports))

    assert (3, 2) == (intake.counted, intake.refused["malformed"])


def test_null_reports_are_discarded_and_are_nobodys_fault() -> None:
    """Padding is counted apart, and is not refused."""
    padding = null_reports(3, _MECHANISM.report_dtype)
    intake = _take_in(_sealed(padding) + _sealed(_MECHANISM.dummies(2, np.random.default_rng(5))))

    assert (2, 3) == (intake.counted, intake.null)
    assert 0 == sum(intake.refused.values())


def test_a_chunk_of_nothing_but_trouble_holds_nothing_up() -> None:
    """All repeats, all unreadable, or empty: the other chunks are counted."""
    sealed = _sealed(_MECHANISM.dummies(3, np.random.default_rng(6)))
    intake = _take_in([*sealed, *sealed, bytes(60), bytes(59) + b"x", bytes(59) + b"y"], chunk=3)

    assert (3, 3, 3) == (intake.counted, intake.refused["repeated"], intake.refused["unreadable"])
