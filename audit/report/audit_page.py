"""The page of an audit: the weakest point, its remedies, and every check."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

from audit.finding import HEADINGS, LIMITS, PASSING, VERDICT_DESCRIPTIONS, Finding
from audit.report.audit_report import AuditReport, changes
from audit.statistics import FAMILY_LEVEL, TEST_LEVEL
from common.messages.guarantee import claimed
from deploy.pages import figures
from deploy.pages.guarantee_sentences import best_guarantees, coalition_name, guarantee_sentences
from deploy.pages.page import render

NOT_TRIED: Final = "not tried"

FindingsById = dict[str, Finding]


def audit_page(report: AuditReport) -> str:
    """Render the page of an audit: one file without scripts or external resources."""
    headings = {
        heading: {f"{heading.replace(' ', '-')}-{n}": row for n, row in enumerate(rows, start=1)}
        for heading, rows in report.by_heading.items()
    }
    by_id = {id_: finding for under in headings.values() for id_, finding in under.items()}
    failed = {f"failed-{number}": row for number, row in enumerate(report.failed, start=1)}
    sentences = dict(zip(report.guarantees, guarantee_sentences(report.guarantees), strict=True))
    coalitions = coalition_rows(report, by_id)
    return render(
        "audit.html",
        version=report.version,
        styles=("audit.css",),
        report=report,
        limits={id_: row for id_, row in by_id.items() if row.verdict == "known limit"},
        failed=failed,
        weakest=sentences[report.weakest],
        also=[coalition_name(coalition) for coalition in report.equally_weak],
        main=sentences[claimed(report.guarantees)],
        measured=report.largest_gain,
        changes=changes(report),
        advised={row.advice: id_ for id_, row in reversed((failed | by_id).items()) if row.advice},
        coalitions=coalitions,
        untried=[coalition_name(row["coalition"]) for row in coalitions if row["attack"] is None],
        headings=[
            (name.replace(" ", "-"), name.capitalize(), HEADINGS[name], under)
            for name, under in headings.items()
        ],
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
