import dataclasses
import html
import math
import re
from functools import cache

import pytest

from deploy.audit.finding import VERDICTS_IN_WORDS, Curve, CurvePoint
from deploy.audit.report.audit_charts import (
    allowed_rate,
    claim_line,
    curve_chart,
    roc_description,
)
from deploy.audit.report.audit_page import audit_page, coalition_rows
from deploy.audit.report.recommendations import weakest_point
from tests.support.audit_reports import (
    demo_report,
    failed_report,
    finding,
    noiseless_report,
    report_of,
)
from tests.support.protocol_tasks import protocol_task

_REPORTS = {"demo": demo_report, "noiseless": noiseless_report, "failed": failed_report}


_CHEAP = protocol_task("ldp-grr")


@cache
def _page(name: str) -> str:
    return audit_page(_REPORTS[name]())


def _text(page: str) -> str:
    main = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", main)).split())


def _section(page: str, name: str) -> str:
    return _text(page.partition(f'<section id="{name}"')[2].partition("</section>")[0])


@pytest.mark.parametrize("name", _REPORTS)
def test_a_page_loads_nothing_and_runs_nothing(name: str) -> None:
    """No script, and no address anywhere."""
    page = _page(name)

    assert "<script" not in page
    assert "http:" not in page
    assert "https:" not in page
    assert "script-src" not in page
    assert "default-src 'none'" in html.unescape(page)


def test_the_weakest_point_and_its_remedies_come_first() -> None:
    """The coalition, its ε in words, the measurement, remedies, and what would not help."""
    told = _section(_page("demo"), "weakest")

    assert "shuffler and the analyzer together" in _text(_page("demo").partition("<main")[0])
    assert "1 of them is a known limit" in _text(_page("demo"))
    assert told.split("weakest point:")[1].startswith(" the shuffler and the analyzer together")
    for part in (
        *("54.6 times as likely", "98.3 %", "at least 3.98", "4,000,000 trials"),
        *("Lower local_epsilon, for example from 4 to 2", "different organisations"),
        "dummies do not help here",
        "Lower local_epsilon, or let different organisations operate the two.",  # of the row
    ):
        assert part in told, part


def test_without_local_noise_nothing_is_promised_against_the_pair() -> None:
    """Words stand in the place of a number."""
    told = _section(_page("noiseless"), "weakest")

    assert "the shuffler and the analyzer together" in told
    assert "nothing is promised: they may learn your value" in told
    assert "Let every device add noise" in told
    assert "against them nothing is promised" in _text(_page("noiseless"))


def test_a_failed_report_starts_with_its_failures() -> None:
    """In its title, in its first sentence, and in its first section."""
    page = _page("failed")
    told = _text(page)

    assert "<title>Audit not passed: 1 row is not as it must be" in page
    assert told.index("Not passed:") < told.index("What failed") < told.index("What was measured")
    assert page.index('id="failed"') < page.index('id="weakest"')
    assert "Find out why the batch was not permuted." in _section(page, "failed")
    assert "Passed:" not in told
    assert 'id="failed"' not in _page("demo")


def test_a_report_of_nothing_does_not_pass() -> None:
    """Every section is marked as empty, or left out."""
    page = audit_page(report_of(_CHEAP, ()))

    assert "nothing was checked" in _text(page)
    assert "Nothing of it was checked in this run." in _section(page, "correctness")
    assert "<svg" not in page


def test_every_coalition_has_one_row_the_weakest_first() -> None:
    """Coalitions of the guarantees, tried or not."""
    rows = coalition_rows(demo_report(), weakest_point(demo_report()))

    assert [
        ("shuffler+analyzer", 4.0, "reached"),
        ("analyzer+users", 0.3611, "not contradicted"),
        ("analyzer", 0.108_169_5, "not contradicted"),
        ("shuffler", 0.0, "holds"),
        ("network", 0.0, "not tried"),
    ] == [(row.coalition, row.claim, row.verdict) for row in rows]
    assert [True, False, False, False, False] == [row.weakest for row in rows]


def test_hostile_text_is_shown_as_it_is() -> None:
    """In every field that may hold a name of a task: no element, no attribute, no template."""
    text = "</style><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}" + '" x="'
    row = finding(
        scenario=text,
        title=text,
        sentence=text,
        advice=text,
        theorem=text,
        statistic=text,
        coalition=text,
        heading="anonymity",
        verdict="broken",
        roc=((0.0, 0.0), (1.0, 1.0)),
    )
    point = CurvePoint(colluding=0.0, honest=2, claim=1.0, attack=None)
    curve = Curve(title=text, delta=0.0, points=(point,))
    report = dataclasses.replace(
        report_of(_CHEAP, (row,), curves=(curve,)), command=text, version=text
    )
    page = audit_page(report)

    assert page.count(html.escape(text).replace("&quot;", "&#34;")) > 10
    assert "<script" not in page
    assert "<img" not in page


@pytest.mark.parametrize("name", _REPORTS)
def test_every_picture_has_a_description_and_a_table(name: str) -> None:
    """Swatches beside words are hidden; every id is unique."""
    page = _page(name)
    pictures = re.findall(r"<svg[^>]*>", page)
    told = [svg for svg in pictures if 'role="img"' in svg]

    assert told
    assert all('aria-hidden="true"' in svg for svg in pictures if svg not in told)
    assert len(told) == page.count("</desc>") == page.count("The same as a table")
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for parts in re.findall(r'role="img" aria-labelledby="([^"]+)"', page):
        assert set(parts.split()) <= set(ids)


def test_every_verdict_and_the_run_are_explained() -> None:
    """Meaning, false alarms, seed and command."""
    told = _section(_page("demo"), "reading")

    for name, words in VERDICTS_IN_WORDS.items():
        assert f"{name} {words[:1].upper()}{words[1:]}." in told
    for part in (
        *("1 in 909,090", "once in 20,000,000 runs", "no run exceeds 1 in 10,000."),
        *("seed 20261121", "shuffledp audit task.json --quick --seed 20261121"),
    ):
        assert part in told, part


def test_rows_stand_under_their_headings_and_failed_ones_first() -> None:
    """With sentence, advice and figures."""
    anonymity, senders = _section(_page("failed"), "anonymity"), _page("demo")

    assert anonymity.index("A batch that came in order") < anonymity.index("A whole batch")
    assert "Let every person submit once" in _section(senders, "sender-disruption")
    assert "Expected 0.011 Measured 0.0112" in _section(senders, "sender-disruption")


def test_a_curve_breaks_where_nothing_is_claimed() -> None:
    """Infinity has no place in a plane; the table shows it."""
    whole, broken = (curve_chart(curve) for curve in demo_report().curves)

    assert broken.breaks
    assert not whole.breaks
    assert ["90\N{NO-BREAK SPACE}%", "2,000", "no guarantee", "4.1", "–"] == list(broken.rows[-1])
    assert 3 == len(broken.claim[0].split())
    assert 1 == len(whole.nothing)
    assert 7 == len(whole.rows)


@pytest.mark.parametrize("point", [(0.0, 0.0), (1.0, 4.0), (math.inf, math.inf)])
def test_a_curve_of_one_point_is_drawn(point: tuple[float, float]) -> None:
    """At 0, at a finite ε, and without a promise."""
    claim, attack = point
    only = CurvePoint(colluding=0.0, honest=1, claim=claim, attack=attack, measured=0.0)
    chart = curve_chart(Curve(title="one", delta=0.0, points=(only,)))

    assert 1 == len(chart.rows)
    assert len(chart.claim) == (0 if claim in {0.0, math.inf} else 1)


def test_the_claim_line_is_what_epsilon_and_delta_allow() -> None:
    """That is t ≤ e^ε f + δ, and the same with both values exchanged; never above 1."""
    row = finding(claim_epsilon=math.log(2), delta=0.1)

    # 2·0 + .1; 2·.2 + .1 = .5 below 1 - (1 - .2 - .1)/2 = .65; 1 - (1 - .6 - .1)/2 = .85; 1.
    assert ["0.1", "0.5", "0.85", "1"] == [allowed_rate(f, row) for f in (0.0, 0.2, 0.6, 1.0)]
    assert [(0, 0), (0, 0.1), (0.3, 0.7), (0.9, 1), (1, 1)] == [
        pytest.approx(corner) for corner in claim_line(row)
    ]


def test_where_nothing_is_claimed_there_is_no_line() -> None:
    """And the description says so."""
    row = finding(claim_epsilon=math.inf, roc=((0.0, 0.0), (0.0, 1.0), (1.0, 1.0)))

    assert () == claim_line(row)
    assert "no limit" == allowed_rate(0.5, row)
    assert "nothing is claimed" in roc_description(row)
