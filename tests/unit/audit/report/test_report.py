"""The report of an audit: its verdict, its weakest point, its JSON and its table."""

import dataclasses
import io
import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from shuffledp.audit.harness.tasks import sample_chain
from shuffledp.audit.report.audit_report import AuditReport, SelfTestResult, as_json, changes
from shuffledp.audit.report.report_views import audit_page, show_report
from shuffledp.audit.scenarios import SCENARIOS
from shuffledp.audit.statistics import FAMILY_LEVEL, MAX_TESTS
from shuffledp.deploy.terminal.json_output import dumps
from tests.support.audit_reports import (
    demo_report,
    demo_task,
    failed_report,
    finding,
    noiseless_report,
    report_of,
)
from tests.support.protocol_tasks import protocol_task


def _without_shuffler() -> AuditReport:
    return report_of(protocol_task("ldp-grr"), (finding(),))


def _with_two() -> AuditReport:
    return report_of(sample_chain(), (finding(),))


def test_a_report_passes_if_it_has_findings_and_all_pass() -> None:
    """One failed finding fails the report, and so does a run that checked nothing."""
    assert demo_report().passed
    assert not failed_report().passed
    assert ["contradicted"] == [row.verdict for row in failed_report().failed]
    assert not report_of(demo_task(), ()).passed
    assert _read(failed_report())["passed"] is False


@pytest.mark.parametrize(
    ("verdicts", "headline", "self_test"),
    [
        (["holds"], "The check passed.", "WEAKNESS NOT DETECTED"),
        (["holds", "not covered"], "1 passed, 1 not covered.", "does not apply to this task"),
        (["broken", "not attacked"], "1 of 1 checks failed, 1 not attacked.", "weakness detected"),
        (["not covered"], "nothing was checked.", "does not apply to this task"),
    ],
)
def test_untested_checks_do_not_count(verdicts: list[Any], headline: str, self_test: str) -> None:
    """In print, on the page and in the self-test."""
    rows = tuple(finding(verdict=each) for each in verdicts)
    report = report_of(demo_task(), rows)
    tested = SelfTestResult(scenario=SCENARIOS[0], honest=(), weakened=rows)

    assert (verdicts[0] == "holds") == report.passed
    assert ("" if report.passed else "NOT PASSED: ") + headline in _at(80, report)
    assert headline in audit_page(report)
    assert self_test == tested.outcome


def test_the_false_alarm_rate_depends_on_the_number_of_tests() -> None:
    """By the union bound; a run with too many tests fails."""
    half = finding(tests=MAX_TESTS // 2)
    assert FAMILY_LEVEL == report_of(demo_task(), (half, half)).false_alarm

    [*_, too_many] = report_of(demo_task(), (finding(tests=MAX_TESTS + 1),)).findings
    assert not too_many.passed
    assert "2,001 statistical tests" in too_many.sentence


@pytest.mark.parametrize(
    ("make", "coalition", "equals", "measured", "action"),
    [
        (
            *(demo_report, "shuffler+analyzer", ("issuer+analyzer",), "linked-report"),
            "Lower local_epsilon, for example",
        ),
        (noiseless_report, "analyzer+sybils", ("shuffler+analyzer",), None, "one-time tokens"),
        (_with_two, "both-shufflers+analyzer", (), None, "Give up the second shuffler"),
        # Without a shuffler to rely on, the analyzer alone is the weakest point.
        (_without_shuffler, "analyzer", ("shuffler+analyzer",), None, "relies on a shuffler"),
    ],
)
def test_the_weakest_point_decides_the_remedies(
    make: Callable[[], AuditReport],
    coalition: str,
    equals: tuple[str, ...],
    measured: str | None,
    action: str,
) -> None:
    """The largest ε, the smallest coalition that has it, and the measured attack."""
    report = make()

    assert (coalition, report.task.local_epsilon, equals) == (
        report.weakest.coalition,
        report.weakest.epsilon,
        tuple(report.equally_weak),
    )
    assert measured == (report.largest_gain and report.largest_gain.scenario)
    assert any(action in change for change in changes(report).values())


def test_attacks_are_ranked_by_failure_then_claim_and_leave_out_claims_of_others() -> None:
    """Refutations of published bounds are no attacks on the task."""
    assert ["shuffled-batch"] == [row.scenario for row in demo_report().attacks_by("analyzer")]

    [attack] = demo_report().attacks_by("shuffler+analyzer")
    other = dataclasses.replace(attack, claim_epsilon=9.0, empirical_epsilon_lower=8.9)
    weak = dataclasses.replace(attack, verdict="contradicted", empirical_epsilon_lower=0.1)
    report = report_of(demo_task(), (other, attack, weak))

    assert (weak, attack, other) == report.attacks_by("shuffler+analyzer")


def _read(report: AuditReport) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(dumps(as_json(report)), parse_constant=refuse)


def test_json_has_text_for_infinity_null_for_nan_and_no_numpy() -> None:
    """In findings, guarantees and the task."""
    read = _read(noiseless_report())
    assert "inf" == read["findings"][0]["claim_epsilon"] == read["local_epsilon"]
    assert "inf" == read["guarantees"][1]["epsilon"]

    row = finding(expected=math.nan, measured=np.float64(0.5), trials=np.int64(7))
    [shown] = _read(report_of(demo_task(), (row,)))["findings"]
    assert (None, 0.5, 7) == tuple(shown[name] for name in ("expected", "measured", "trials"))


def _at(width: int, report: AuditReport) -> str:
    written = io.StringIO()
    show_report(report, Console(file=written, width=width, emoji=False))
    return written.getvalue()


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_figure_is_truncated_or_left_out(width: int) -> None:
    """Nor a verdict; no line is too long; the legend has the shown columns and verdicts."""
    text = _at(width, demo_report())

    for figure in ("0.1082", "0.1079", "0.0612", "0.3611", "0.0112", "11.98"):
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", text), figure
    assert "contradicted" in text
    explained = set(re.findall(r"^(tight|ceiling|broken)  ", text, re.MULTILINE))
    assert {"tight", "ceiling"} == explained
    assert max(map(len, text.splitlines())) <= width


def test_failures_come_first_and_are_in_capitals_in_the_table() -> None:
    """They are marked without colour, too."""
    text = _at(80, failed_report())
    before, _, table = text.partition("Weakest point")
    before = " ".join(before.split())

    assert table.index("A batch") < table.index("CONTRADICTED") < table.index("Correctness")
    for part in ("told two values apart", "Find out why", "NOT PASSED: 1 of 9 checks failed."):
        assert part in before, part
    demo = _at(80, demo_report())
    assert "FAILED" not in demo
    assert "Weakest point: shuffler+analyzer, epsilon 4 at delta 0." in demo
    assert "nothing is promised against it" in _at(80, noiseless_report())


def test_idle_scenarios_and_empty_runs_are_marked() -> None:
    """A scenario without findings is listed."""
    text = _at(80, dataclasses.replace(report_of(demo_task(), ()), idle=("skippers", "partition")))

    assert "NOT PASSED: nothing was checked." in text
    assert "Anonymity" not in text
    assert "Nothing to run on this task: skippers, partition." in text


def test_untrusted_text_cannot_control_the_terminal() -> None:
    """Titles and sentences can contain a task's labels."""
    row = finding(
        title="[red]\x1b[2J\\",
        sentence="[bold]\u202eevil",
        advice="[/]",
        verdict="broken",
        coalition="[x]+\x07",
        subject="pureDUMP",
        expected=math.nan,
    )
    text = _at(200, report_of(demo_task(), (row,))) + _at(20, report_of(demo_task(), (row,)))

    assert not {"\x1b", "\u202e", "\x07"} & set(text)
    assert "[red]" in text
    assert "(pureDUMP)" in text
    assert "[bold]" in text
