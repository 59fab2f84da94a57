import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deploy.audit.report.audit_report import AuditReport, as_json, weakest_point
from deploy.audit.report.recommendations import changes
from deploy.audit.statistics import FAMILY_LEVEL, MAX_TESTS
from deploy.terminal.json_output import dumps
from tests.support.audit_reports import (
    demo_report,
    demo_task,
    failed_report,
    finding,
    noiseless_report,
    report_of,
)
from tests.support.protocol_tasks import protocol_task


def test_a_report_passes_if_it_has_rows_and_every_row_does() -> None:
    """One failed row fails it, and so does a run that checked nothing."""
    assert demo_report().passed
    assert not failed_report().passed
    assert ["contradicted"] == [row.verdict for row in failed_report().failed]
    assert not report_of(demo_task(), ()).passed
    assert _read(failed_report())["passed"] is False


def test_the_false_alarm_rate_is_that_of_the_tests_that_were_made() -> None:
    """By the union bound; a run that makes more tests than it may fails."""
    half = finding(tests=MAX_TESTS // 2)
    assert FAMILY_LEVEL == report_of(demo_task(), (half, half)).false_alarm

    [*_, too_many] = report_of(demo_task(), (finding(tests=MAX_TESTS + 1),)).findings
    assert not too_many.passed
    assert "2,001 statistical tests" in too_many.sentence


@pytest.mark.parametrize("make", [demo_report, noiseless_report])
def test_shuffler_and_analyzer_together_are_the_weakest_point(
    make: Callable[[], AuditReport],
) -> None:
    """With local noise and without; the attack on them is the one that was measured."""
    report = make()
    point = weakest_point(report)

    assert point.measured is not None
    assert ("shuffler+analyzer", report.task.local_epsilon, "linked-report", ()) == (
        point.guarantee.coalition,
        point.guarantee.epsilon,
        point.measured.scenario,
        point.equals,
    )


def test_of_equals_the_smaller_coalition_is_the_weakest() -> None:
    """Where no shuffler is relied on, the analyzer needs nobody."""
    point = weakest_point(report_of(protocol_task("ldp-grr"), (finding(),)))

    assert ("analyzer", ("shuffler+analyzer",)) == (point.guarantee.coalition, point.equals)
    assert point.measured is None


def test_attacks_are_ranked_by_failure_then_claim_and_leave_out_claims_of_others() -> None:
    """Refuted published bounds are no attacks on the task."""
    assert ["shuffled-batch"] == [row.scenario for row in demo_report().attacks_by("analyzer")]

    [attack] = demo_report().attacks_by("shuffler+analyzer")
    other = dataclasses.replace(attack, claim_epsilon=9.0, empirical_epsilon_lower=8.9)
    weak = dataclasses.replace(attack, verdict="contradicted", empirical_epsilon_lower=0.1)
    report = report_of(demo_task(), (other, attack, weak))

    assert (weak, attack, other) == report.attacks_by("shuffler+analyzer")


@pytest.mark.parametrize(
    ("make", "action"),
    [
        (demo_report, "Lower local_epsilon, for example from 4 to 2"),
        (demo_report, "different organisations"),
        (demo_report, "a few more dummies do not help"),
        (noiseless_report, "add noise"),
        (lambda: report_of(protocol_task("ldp-grr"), (finding(),)), "relies on a shuffler"),
        (lambda: report_of(protocol_task("aue"), (finding(),)), "Let different organisations"),
    ],
)
def test_remedies_follow_from_the_weakest_point(
    make: Callable[[], AuditReport], action: str
) -> None:
    """With local noise and without, with a shuffler and without."""
    assert any(action in change.action for change in changes(make(), weakest_point(make())))


def _read(report: AuditReport) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(dumps(as_json(report)), parse_constant=refuse)


def test_json_has_text_for_infinity_null_for_nan_and_no_numpy() -> None:
    """In rows, guarantees, curves and the task."""
    read = _read(noiseless_report())
    assert "inf" == read["findings"][0]["claim_epsilon"] == read["local_epsilon"]
    assert "inf" == read["guarantees"][1]["epsilon"]
    assert "inf" == _read(demo_report())["curves"][0]["points"][-1]["claim"]

    row = finding(
        expected=math.nan,
        measured=np.float64(0.5),
        trials=np.int64(7),
        roc=((np.float64(0.0), math.nan),),
    )
    [shown] = _read(report_of(demo_task(), (row,)))["findings"]
    assert (None, 0.5, 7, [[0.0, None]]) == tuple(
        shown[name] for name in ("expected", "measured", "trials", "roc")
    )
