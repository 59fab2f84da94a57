"""An audit as a page, and as terminal tables: the weakest point, and every check."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from textwrap import fill, wrap
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from shuffledp.audit.finding import LIMITS, PASSING, VERDICT_DESCRIPTIONS, Finding, failed
from shuffledp.audit.report.audit_report import AuditReport, SelfTestResult, changes
from shuffledp.audit.scenario import Scenario
from shuffledp.audit.statistics import FAMILY_LEVEL, TEST_LEVEL
from shuffledp.common.messages.guarantee import claimed, rounded_down, rounded_up
from shuffledp.deploy.pages import figures
from shuffledp.deploy.pages.guarantee_sentences import (
    best_guarantees,
    coalition_name,
    guarantee_sentences,
)
from shuffledp.deploy.pages.page import render
from shuffledp.deploy.terminal.escape import escaped
from shuffledp.deploy.terminal.tables import print_rows

NOT_TRIED: Final = "not tried"

FindingsById = dict[str, Finding]
_NONE: Final = "-"
_STYLES: Final = {True: "", False: "bold red"}

_COLUMNS: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "claimed": ("claim_epsilon", rounded_up),
    "computed": ("exact_epsilon", rounded_down),
    "measured": ("empirical_epsilon_lower", rounded_down),
    "ceiling": ("ceiling", rounded_down),
    "measured δ": ("empirical_delta_lower", rounded_down),
    "expected": ("expected", "{:.4g}".format),
    "found": ("measured", "{:.4g}".format),
}
_TEXTS: Final = ("checked", "against", "verdict")
_ORDER: Final = (
    *("checked", "against", "claimed", "computed", "measured", "verdict"),
    *("ceiling", "measured δ", "expected", "found"),
)
_VERDICT_WIDTH: Final = 12
_ROOM_OF_FIGURES: Final = 45
"""Characters of a line that the two texts before the figures leave to them."""
_LEGEND: Final[Mapping[str, str]] = {
    "(…)": "the attacked design, if it is not this task",
    "claimed": "a theorem's upper bound on epsilon, at the delta below it or at 0",
    "computed": "epsilon that the attack reaches, calculated",
    "measured": "epsilon that the attack reached in this run: a lower bound",
    "ceiling": "largest epsilon that this number of trials could show",
    "measured δ": "delta that the attack reached at the claimed epsilon: a lower bound",
    "expected": "share, probability or number given by a formula",
    "found": "share, probability or number in this run",
    **VERDICT_DESCRIPTIONS,
}
"""Explanations of columns and verdicts; those that occur in the tables are printed."""


def audit_page(report: AuditReport) -> str:
    """Render the page of an audit: one file without scripts or external resources."""
    headings = {
        heading: {f"{heading.replace(' ', '-')}-{n}": row for n, row in enumerate(rows, start=1)}
        for heading, rows in report.by_heading.items()
    }
    by_id = {id_: finding for under in headings.values() for id_, finding in under.items()}
    broken = {f"failed-{number}": row for number, row in enumerate(report.failed, start=1)}
    sentences = dict(zip(report.guarantees, guarantee_sentences(report.guarantees), strict=True))
    coalitions = coalition_rows(report, by_id)
    return render(
        "audit.html",
        version=report.version,
        styles=("audit.css",),
        report=report,
        limits={id_: row for id_, row in by_id.items() if row.verdict == "known limit"},
        failed=broken,
        weakest=sentences[report.weakest],
        also=[coalition_name(coalition) for coalition in report.equally_weak],
        main=sentences[claimed(report.guarantees)],
        measured=report.largest_gain,
        changes=changes(report),
        advised={row.advice: id_ for id_, row in reversed((broken | by_id).items()) if row.advice},
        coalitions=coalitions,
        untried=[coalition_name(row["coalition"]) for row in coalitions if row["attack"] is None],
        headings=headings,
        verdicts=VERDICT_DESCRIPTIONS,
        false_alarm=_one_in(report.false_alarm),
        family_level=_one_in(FAMILY_LEVEL),
        test_level=_one_in(TEST_LEVEL),
        coalition_name=coalition_name,
        verdict_style=_verdict_style,
        figures_of=_figures,
    )


def coalition_rows(report: AuditReport, by_id: FindingsById) -> list[dict[str, Any]]:
    """
    Return a row for each coalition, the weakest first, then by falling claim.

    A row has the most important attack or None, the others, the verdict, the id on the page, and ε
    and δ of the attacked claim, or else of the best guarantee.
    """
    best = {str(name): guarantee for name, guarantee in best_guarantees(report.guarantees).items()}
    tried = {f.coalition for f in report.findings if report.attacks_by(f.coalition)} - {"nobody"}
    rows = list[dict[str, Any]]()
    for coalition in (*best, *sorted(tried - set(best))):
        attacks, guarantee = report.attacks_by(coalition), best.get(coalition)
        claim, delta = (None, None) if guarantee is None else (guarantee.epsilon, guarantee.delta)
        first = attacks[0] if attacks else None
        if first is not None and first.claim_epsilon is not None:
            claim, delta = first.claim_epsilon, first.delta
        row = {
            "coalition": coalition,
            "weakest": coalition == report.weakest.coalition,
            "attack": first,
            "others": attacks[1:],
            "verdict": first.verdict if first else NOT_TRIED,
            "link": next((id_ for id_, finding in by_id.items() if finding is first), ""),
            "claim": claim,
            "delta": delta,
        }
        rows.append(row)
    return sorted(rows, key=lambda row: (not row["weakest"], -(row["claim"] or 0.0)))


def _plain(figure: float) -> str:
    return figures.format_scientific(figure) if "e" in f"{figure:,.4g}" else f"{figure:,.4g}"


_FIGURES: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "Claimed ε": ("claim_epsilon", figures.format_privacy),
    "At δ": ("delta", figures.format_privacy),
    "Computed ε": ("exact_epsilon", figures.format_lower_bound),
    "Measured ε, at least": ("empirical_epsilon_lower", figures.format_lower_bound),
    "Measured δ there, at least": ("empirical_delta_lower", figures.format_lower_bound),
    "Most this run could show": ("ceiling", figures.format_lower_bound),
    "Expected": ("expected", _plain),
    "Measured": ("measured", _plain),
}


def _figures(finding: Finding) -> Iterable[tuple[str, str]]:
    for name, (field, format_figure) in _FIGURES.items():
        figure: float | None = getattr(finding, field)
        if figure is not None and not math.isnan(figure) and (figure or field != "delta"):
            yield name, format_figure(figure)


def _one_in(chance: float) -> str:
    """Format a probability of about 1/N as N, rounded down; empty for 0."""
    # Round to six digits first: 1 - .99999995 is 4.9999999973737e-08, not 5e-08.
    return "" if chance <= 0 else f"{math.floor(1 / float(f'{chance:.6g}') + 1e-6):,}"


def _verdict_style(verdict: str) -> tuple[str, str]:
    """Return a verdict's symbol and CSS class: good, warn, bad or plain."""
    if verdict == NOT_TRIED:
        return "–", "plain"
    if verdict in LIMITS:
        return "!", "warn"
    return ("✓", "good") if verdict in PASSING else ("✗", "bad")


def show_report(report: AuditReport, console: Console) -> None:
    """Print the verdict, failures and the weakest point; then tables of figures and a legend."""
    show_line = partial(console.print, highlight=False)
    verdict = "" if report.passed else "NOT PASSED: "
    show_line(
        f"[bold]{verdict}{report.headline}.[/bold] Correct code fails by chance with probability "
        f"at most {report.false_alarm:.2g} ({report.tests} tests). Seed {report.seed}, "
        f"{report.mode}, {report.seconds:.0f} s."
    )
    for row in report.failed:
        show_line(
            f"FAILED: {escaped(row.title)}: {row.verdict.upper()}, "
            f"{VERDICT_DESCRIPTIONS[row.verdict]}.\n  {escaped(row.sentence)} "
            f"{escaped(row.advice)}",
            style="bold red",
        )
    weakest = report.weakest
    claim = "nothing is promised against it"
    if math.isfinite(epsilon := weakest.epsilon):
        claim = f"epsilon {rounded_up(epsilon)} at delta {rounded_up(weakest.delta)}"
    show_line(f"Weakest point: {escaped(weakest.coalition)}, {claim}.")
    for action in changes(report).values():
        show_line(f"* {escaped(action)}.")
    if report.idle:
        show_line(f"Nothing to run on this task: {', '.join(report.idle)}.")
    if report.other_kinds:
        show_line(f"Not run for {report.task.kind} data: {', '.join(report.other_kinds)}.")
    if report.other_shufflers:
        show_line(f"Not run with {report.shufflers}: {', '.join(report.other_shufflers)}.")
    show_line()
    _show_tables(report, console)


def _show_tables(report: AuditReport, console: Console) -> None:
    """Print the figures under each heading, failures last, and a legend of columns and verdicts."""
    shown = set[object]()
    for heading, rows in report.by_heading.items():
        if rows:
            ordered = sorted(rows, key=lambda row: not row.passed)
            cells = [_cells(row, console.width) for row in ordered]
            console.print(heading.capitalize(), style="italic")
            print_rows(cells, console, _TEXTS, order=_ORDER)
            shown |= {row.verdict for row in rows}.union(*cells)
            shown |= {"(…)" for row in rows if row.subject}
    legend = Table.grid("shown", "meaning", padding=(0, 2, 0, 0))
    for name in filter(shown.__contains__, _LEGEND):
        legend.add_row(name, f"{_LEGEND[name]}.")
    console.print(legend, style="dim")
    console.print()


def _cells(row: Finding, width: int) -> dict[str, str]:
    """Return a finding's cells by column, with texts folded for a terminal of this width."""
    texts = {
        "checked": row.title + f" ({row.subject})" * bool(row.subject),
        "against": "" if row.coalition == "nobody" else row.coalition.replace("+", " + "),
    }
    room = max(2 * _VERDICT_WIDTH, width - _ROOM_OF_FIGURES) // 2
    folded = {name: wrap(text, room) for name, text in texts.items() if text}
    cells = {name: "\n".join(map(escaped, lines)) for name, lines in folded.items()}
    for column, (name, format_figure) in _COLUMNS.items():
        figure: float | None = getattr(row, name)
        if figure is not None and not math.isnan(figure):
            cells[column] = format_figure(figure)
    if "claimed" in cells and row.delta:
        cells["claimed"] += f"\nδ {rounded_up(row.delta)}"
    verdict = row.verdict if row.passed else row.verdict.upper()
    cells["verdict"] = fill(verdict, _VERDICT_WIDTH)
    style = f"[{_STYLES[False]}]" * (not row.passed)  # nothing may follow escaped text
    return {name: style + text for name, text in cells.items()}


def show_self_tests(results: Sequence[SelfTestResult], console: Console) -> None:
    """Print each scenario's self-test result, its weakness and its first failed finding."""
    for result in results:
        show_line = partial(console.print, highlight=False)
        show_line(f"{result.scenario.name}: {result.outcome}", style=_STYLES[result.passed])
        show_line(f"  weakness: {result.scenario.weakness.sentence}")
        for row in (failed(result.honest) or failed(result.weakened))[:1]:
            show_line(f"  {row.verdict.upper()}: {escaped(row.sentence)}")
    n_failed = sum(not result.passed for result in results)
    verdict = f"{n_failed} FAILED THE SELF-TEST" if n_failed else "every weakness was detected"
    console.print(f"Scenarios run with a weakness: {len(results)}; {verdict}.")


def show_names(scenarios: Sequence[Scenario], console: Console) -> None:
    """Print the scenarios, each with its title and the weakness of its self-test."""
    table = Table.grid("name", "title", padding=(0, 2, 0, 0))
    for scenario in scenarios:
        table.add_row(scenario.name, f"{scenario.title}\nself-test: {scenario.weakness.sentence}")
    console.print(table)
