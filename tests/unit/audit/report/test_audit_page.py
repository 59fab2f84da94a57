import dataclasses
import html
import math
import re
from functools import cache
from typing import Final

from shuffledp.audit.report.report_views import audit_page, coalition_rows
from tests.support.audit_reports import demo_report, failed_report, finding, report_of
from tests.support.protocol_tasks import protocol_task

_page: Final = cache(audit_page)


def _text(page: str) -> str:
    main = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", main)).split())


def _section(page: str, name: str) -> str:
    return _text(page.partition(f'<section id="{name}"')[2].partition("</section>")[0])


def test_the_weakest_point_and_its_remedies_come_first() -> None:
    """The coalition, its ε in words, the measurement, remedies, and changes without effect."""
    section = _section(_page(demo_report()), "weakest")

    assert "shuffler and the analyzer together" in _text(_page(demo_report()).partition("<main")[0])
    assert "All 8 checks passed." in _text(_page(demo_report()))
    assert "1 check is a known limit" in _text(_page(demo_report()))
    assert section.split("weakest point:")[1].startswith(" the shuffler and the analyzer together")
    for part in (
        *("54.6 times as likely", "98.3 %", "3.98", "run 4,000,000 times"),
        *("Lower local_epsilon, for example from 4 to 2", "different organizations"),
        "dummies do not help here",
    ):
        assert part in section, part


def test_advice_of_several_checks_is_shown_once() -> None:
    """Below the first of them, a failed one before others."""
    advice = "Ask more people, or raise n_min."
    rows = tuple(dataclasses.replace(row, advice=advice) for row in failed_report().findings)
    page = audit_page(report_of(demo_report().task, rows))

    assert 1 == page.count(advice) == _section(page, "failed").count(advice)


def test_a_failed_report_starts_with_its_failures() -> None:
    """In its title, its first sentence and its first section."""
    page = _page(failed_report())
    text = _text(page)

    assert "<title>Audit not passed: 1 of 9 checks failed" in page
    assert text.index("Not passed:") < text.index("What failed") < text.index("What was measured")
    assert page.index('id="failed"') < page.index('id="weakest"')
    assert "Find out why the batch was not permuted." in _section(page, "failed")
    assert "checks passed" not in text
    assert 'id="failed"' not in _page(demo_report())
    anonymity = _section(page, "anonymity")
    assert anonymity.index("A batch that came in order") < anonymity.index("A whole batch")


def test_shares_of_colluders_have_a_table() -> None:
    """An infinite claim is shown as no guarantee; without an amplified claim there is no table."""
    title = "2,000 of 20,000 users honest"
    row = finding(
        title=title, scenario="colluders", claim_epsilon=math.inf, delta=1e-6, exact_epsilon=4.1
    )
    page, local = (
        audit_page(report_of(demo_report().task, (dataclasses.replace(row, delta=delta),)))
        for delta in (1e-6, 0.0)
    )

    assert f"{title} no guarantee 4.1 –" in _section(page, "colluders")
    assert 'id="colluders"' not in local


def test_the_bound_on_false_alarms_is_shown() -> None:
    """It is the union bound."""
    reading = _section(_page(demo_report()), "reading")

    for part in ("1 in 909,090", "once in 20,000,000 runs", "no run exceeds 1 in 10,000."):
        assert part in reading, part
    assert "seed 20261121" in reading


def test_every_coalition_has_one_row_the_weakest_first() -> None:
    """All coalitions of the guarantees, whether an attack was run or not."""
    rows = coalition_rows(demo_report(), {})

    assert [
        ("shuffler+analyzer", 4.0, "tight"),
        ("issuer+analyzer", 4.0, "not tried"),
        ("analyzer+users", 0.3611, "not contradicted"),
        ("analyzer", 0.108_169_5, "not contradicted"),
        ("shuffler", 0.0, "holds"),
        ("issuer", 0.0, "not tried"),
        ("issuer+shuffler", 0.0, "not tried"),
        ("network", 0.0, "not tried"),
    ] == [(row["coalition"], row["claim"], row["verdict"]) for row in rows]
    assert [True] + [False] * 7 == [row["weakest"] for row in rows]


def test_hostile_text_is_shown_as_text() -> None:
    """In every field that can contain a task's texts; a page loads and runs nothing."""
    text = "</style><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}" + '" x="'
    named = ("scenario", "title", "sentence", "advice", "theorem", "statistic", "coalition")
    row = finding(**dict.fromkeys(named, text), heading="anonymity", verdict="broken")
    report = report_of(protocol_task("ldp-grr"), (row,))
    page = audit_page(dataclasses.replace(report, command=text, version=text))

    assert page.count(html.escape(text).replace("&quot;", "&#34;")) > 10
    assert "default-src 'none'" in html.unescape(page)
    for part in ("<script", "<img", "http:", "https:"):
        assert part not in page
