"""The page of an audit: the weakest point, what to change, and every row that was checked."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.messages.guarantee import claimed
from deploy.audit.finding import HEADINGS, PASSING, VERDICTS_IN_WORDS, Finding, Heading
from deploy.audit.report.audit_report import (
    AuditReport,
    WeakestPoint,
    best_promises,
    weakest_point,
)
from deploy.audit.report.recommendations import changes
from deploy.audit.statistics import FAMILY_LEVEL, TEST_LEVEL
from deploy.pages import figures
from deploy.pages.guarantee_sentences import coalition_name as who
from deploy.pages.guarantee_sentences import guarantee_sentences as promises
from deploy.pages.page import render

NOT_TRIED: Final = "not tried"

_HEADINGS_IN_WORDS: Final = MappingProxyType[Heading, str](
    {
        "anonymity": "What a coalition learns of one person.",
        "correctness": "Whether the code draws, counts and promises what it says.",
        "sender disruption": "What dishonest users do to the result.",
        "server disruption": "What a dishonest shuffler or analyzer does to the result.",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A finding at its place on the page."""

    id: str
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalitionRow:
    """One coalition: the claim against it, and its most important attack, if one was run."""

    coalition: str
    weakest: bool
    about: str
    claim: float | None
    delta: float | None
    attack: Finding | None
    link: str
    """The attack's place on the page; empty without one."""

    @property
    def verdict(self) -> str:
        """The attack's, or `not tried`."""
        return NOT_TRIED if self.attack is None else self.attack.verdict


def audit_page(report: AuditReport) -> str:
    """Make the page of an audit: one file, which shows itself without any network or script."""
    point, headings = weakest_point(report), {name: _rows(report, name) for name in HEADINGS}
    rows = [row for under in headings.values() for row in under]
    sentences = dict(zip(report.guarantees, promises(report.guarantees), strict=True))
    coalitions = coalition_rows(report, point, rows)
    return render(
        "audit.html",
        version=report.version,
        styles=("audit.css",),
        title=_title(report),
        report=report,
        digest=report.task_digest.hex(),
        limits=[row for row in rows if row.finding.verdict == "known limit"],
        failed=[
            Row(id=f"failed-{place}", finding=finding)
            for place, finding in enumerate(report.failed, start=1)
        ],
        weakest=sentences[point.guarantee],
        also=[who(coalition) for coalition in point.equals],
        main=sentences[claimed(report.guarantees)],
        measured=point.measured,
        changes=changes(report, point),
        advice=tuple(
            dict.fromkeys(row.advice for row in (*report.failed, *point.attacks) if row.advice)
        ),
        coalitions=coalitions,
        untried=[who(row.coalition) for row in coalitions if row.attack is None],
        headings=[
            (name.replace(" ", "-"), name.capitalize(), _HEADINGS_IN_WORDS[name], under)
            for name, under in headings.items()
        ],
        verdicts=VERDICTS_IN_WORDS,
        false_alarm=_one_in(report.false_alarm),
        family_level=_one_in(FAMILY_LEVEL),
        test_level=_one_in(TEST_LEVEL),
        who=who,
        tag=_tag,
        gained=_gained,
        figures_of=_figures,
        details_of=_details,
    )


def coalition_rows(
    report: AuditReport, point: WeakestPoint, shown: Sequence[Row] = ()
) -> tuple[CoalitionRow, ...]:
    """Return a row for each coalition, the weakest first, with links to the rows that are shown."""
    best = {str(name): promise for name, promise in best_promises(report.guarantees).items()}
    tried = {f.coalition for f in report.findings if report.attacks_by(f.coalition)} - {"nobody"}
    rows = list[CoalitionRow]()
    for coalition in (*best, *sorted(tried - set(best))):
        attacks = report.attacks_by(coalition)
        first, promise = next(iter(attacks), None), best.get(coalition)
        claim, delta = (None, None) if promise is None else (promise.epsilon, promise.delta)
        about = "no attack by it on a user was run"
        if first is not None:
            about = first.title + (f"; {len(attacks) - 1} more below" if attacks[1:] else "")
            if first.claim_epsilon is not None:
                claim, delta = first.claim_epsilon, first.delta
        rows.append(
            CoalitionRow(
                coalition=coalition,
                weakest=coalition == point.coalition,
                about=about,
                claim=claim,
                delta=delta,
                attack=first,
                link=next((row.id for row in shown if row.finding is first), ""),
            )
        )
    return tuple(sorted(rows, key=lambda row: (not row.weakest, -(row.claim or 0.0))))


def _title(report: AuditReport) -> str:
    if report.passed:
        return "Audit passed"
    if not report.findings:
        return "Audit not passed: nothing was checked"
    return f"Audit not passed: {len(report.failed):,} of {len(report.findings):,} checks failed"


def _rows(report: AuditReport, heading: Heading) -> list[Row]:
    """Return the rows under a heading, those that failed first."""
    under = [finding for finding in report.findings if finding.heading == heading]
    return [
        Row(id=f"{heading.replace(' ', '-')}-{place}", finding=finding)
        for place, finding in enumerate(sorted(under, key=lambda one: one.passed), start=1)
    ]


def _plain(figure: float) -> str:
    return figures.scientific(figure) if "e" in f"{figure:,.4g}" else f"{figure:,.4g}"


def _gained(epsilon: float | None) -> str:
    return "–" if epsilon is None else figures.at_least(epsilon)


_FIGURES: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "Claimed ε": ("claim_epsilon", figures.privacy),
    "At δ": ("delta", figures.privacy),
    "Computed ε": ("exact_epsilon", figures.at_least),
    "Measured ε, at least": ("empirical_epsilon_lower", figures.at_least),
    "Ceiling": ("ceiling", figures.at_least),
    "Expected": ("expected", _plain),
    "Measured": ("measured", _plain),
}
"""The field of each figure of a finding, and how it is written."""


def _figures(finding: Finding) -> Iterable[tuple[str, str]]:
    for name, (field, written) in _FIGURES.items():
        figure: float | None = getattr(finding, field)
        if figure is not None and not math.isnan(figure) and (figure or field != "delta"):
            yield name, written(figure)


def _details(finding: Finding) -> Iterable[tuple[str, str]]:
    known = {
        "Scenario": finding.scenario,
        "Theorem": finding.theorem,
        "Neighbouring": finding.neighbouring,
        "Assumes": "; ".join(finding.assumptions),
        "Statistic": finding.statistic,
        "Trials": figures.count(finding.trials) if finding.trials else "",
        "Statistical tests": figures.count(finding.tests) if finding.tests else "",
        "Advantage": "" if finding.advantage is None else f"{finding.advantage:.4g}",
    }
    return ((name, text) for name, text in known.items() if text)


def _one_in(chance: float) -> str:
    """Write of how many one is a chance, rounded down; nothing for no chance."""
    # Six digits are meant: 1 - .99999995 is 4.9999999973737e-08.
    return "" if chance <= 0 else figures.count(math.floor(1 / float(f"{chance:.6g}") + 1e-6))


def _tag(verdict: str) -> tuple[str, str]:
    """Return the sign before a verdict, and the kind of its tag: good, warn, bad or plain."""
    if verdict == NOT_TRIED:
        return "–", "plain"
    if verdict == "known limit":
        return "!", "warn"
    return ("✓", "good") if verdict in PASSING else ("✗", "bad")
