import dataclasses
import math
from collections.abc import Callable

import pytest

from deploy.audit.report.audit_report import AuditReport
from deploy.audit.report.recommendations import best_promises, weakest_point
from deploy.audit.statistics import FAMILY_LEVEL, MAX_TESTS
from tests.support.audit_reports import (
    demo_report,
    demo_task,
    failed_report,
    finding,
    noiseless_report,
    report_of,
)
from tests.support.protocol_tasks import protocol_task
from tests.support.result_pages import guarantee


def test_a_report_passes_if_every_row_does() -> None:
    """And one row is enough for it not to."""
    assert demo_report().passed
    assert not failed_report().passed
    assert ["contradicted"] == [row.verdict for row in failed_report().failed]


def test_a_report_of_nothing_does_not_pass() -> None:
    """Nothing failed, and nothing was shown."""
    report = report_of(demo_task(), ())

    assert () == report.failed
    assert not report.passed


def test_the_false_alarm_rate_is_that_of_the_tests_that_were_made() -> None:
    """By the union bound, and never more than that of all that may be made."""
    report = report_of(demo_task(), (finding(tests=MAX_TESTS // 2), finding(tests=MAX_TESTS // 2)))

    assert MAX_TESTS == report.tests
    assert FAMILY_LEVEL == report.false_alarm
    [*_, too_many] = report_of(demo_task(), (finding(tests=MAX_TESTS + 1),)).findings
    assert not too_many.passed
    assert "2,001 statistical decisions" in too_many.sentence


@pytest.mark.parametrize("make", [demo_report, noiseless_report])
def test_shuffler_and_analyzer_together_are_the_weakest_point(
    make: Callable[[], AuditReport],
) -> None:
    """With local noise and without; the attack on them is the one that was measured."""
    report = make()
    point = weakest_point(report)

    assert "shuffler+analyzer" == point.coalition
    assert report.task.local_epsilon == point.guarantee.epsilon
    assert point.measured is not None
    assert "linked-report" == point.measured.scenario
    assert () == point.equals


def test_of_equals_the_smaller_coalition_is_the_weakest() -> None:
    """Where no shuffler is relied on, the analyzer needs nobody."""
    point = weakest_point(report_of(protocol_task("ldp-grr"), (finding(),)))

    assert "analyzer" == point.coalition
    assert ("shuffler+analyzer",) == point.equals
    assert point.measured is None


def test_of_several_promises_to_one_coalition_the_best_counts() -> None:
    """All of them hold at once, the infinite one too."""
    best = best_promises(
        [
            guarantee("analyzer", 0.1, 1e-6),
            guarantee("shuffler+analyzer", math.inf, 0.0),
            guarantee("shuffler+analyzer", 3.9, 1e-6),
            guarantee("shuffler", math.inf, 0.0),
        ]
    )

    assert [0.1, 3.9, math.inf] == [promise.epsilon for promise in best.values()]


def test_a_false_claim_of_others_is_no_attack_on_the_task() -> None:
    """Published bounds that are refuted stand among the analyzer's rows, and say nothing of it."""
    attacks = demo_report().attacks_by("analyzer")

    assert ["shuffled-batch"] == [row.scenario for row in attacks]


def test_what_failed_comes_first_and_then_what_is_promised() -> None:
    """However much another attack gained."""
    [attack] = demo_report().attacks_by("shuffler+analyzer")
    other = dataclasses.replace(attack, claim_epsilon=9.0, empirical_epsilon_lower=8.9)
    weak = dataclasses.replace(attack, verdict="contradicted", empirical_epsilon_lower=0.1)
    report = report_of(demo_task(), (other, attack, weak))

    assert (weak, attack, other) == report.attacks_by("shuffler+analyzer")
