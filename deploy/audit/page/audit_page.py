"""The page of an audit: the weakest point, what to change, and every row that was checked."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.messages.guarantee import claimed
from deploy.audit.finding import (
    HEADINGS,
    PASSING,
    VERDICTS_IN_WORDS,
    Finding,
    Heading,
    Verdict,
)
from deploy.audit.page.audit_charts import HEIGHT, SIDE, WIDTH, curve_chart, roc_chart
from deploy.audit.page.audit_variants import Variant, variants
from deploy.audit.recommendations import (
    WeakestPoint,
    best_promises,
    changes,
    weakest_point,
)
from deploy.audit.report import AuditReport
from deploy.audit.statistics import FAMILY_LEVEL, TEST_LEVEL
from deploy.pages import figures
from deploy.pages.guarantee_sentences import coalition_name as who
from deploy.pages.guarantee_sentences import guarantee_sentences as promises
from deploy.pages.page import render

_HUNDRED: Final = 100.0
NOT_TRIED: Final = "not tried"

_HEADINGS_IN_WORDS: Final = MappingProxyType[Heading, tuple[str, str]](
    {
        "anonymity": ("Anonymity", "What a coalition learns of one person."),
        "correctness": (
            "Correctness",
            "Whether the code draws, counts and promises what it says.",
        ),
        "sender disruption": ("Sender disruption", "What dishonest users do to the result."),
        "server disruption": (
            "Server disruption",
            "What a dishonest shuffler or analyzer does to the result.",
        ),
    }
)
_MODES: Final = MappingProxyType(
    {
        "quick": "quick: fewer draws, so that ceilings are lower and small faults may be missed",
        "full": "full: as many draws as the audit ever makes",
    }
)
_SIGNS: Final = MappingProxyType({"known limit": "!"})
"""Before a verdict, where it is neither good nor bad."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A finding, as a reader is shown it."""

    id: str
    """Of its place on the page."""
    title: str
    who: str
    subject: str
    """Another design than the audited task's."""
    sentence: str
    advice: str
    verdict: str
    sign: str
    kind: str
    """Of the verdict's tag: good, warn or plain."""
    figures: tuple[tuple[str, str], ...]
    details: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalitionRow:
    """One coalition: what is claimed against it, and what was found."""

    who: str
    link: str
    """Where its row stands on the page; nothing if none does."""
    weakest: bool
    about: str
    """Which attack the figures are of."""
    claim: str
    delta: str
    exact: str
    measured: str
    ceiling: str
    verdict: str
    sign: str
    kind: str


def audit_page(report: AuditReport) -> str:
    """
    Make the page of an audit: one file, which shows itself without any network or script.

    Cost: searches for ε of what could be changed, about a second.
    """
    point = weakest_point(report)
    headings = _headings(report)
    places = {id(finding): row.id for _, rows in headings.values() for finding, row in rows}
    told = dict(zip(report.guarantees, promises(report.guarantees), strict=True))
    measured = point.measured
    found = variants(report, point)
    return render(
        "audit.html",
        version=report.version,
        styles=("audit.css",),
        title=_title(report),
        report=report,
        digest=report.task_digest.hex(),
        passed=report.passed,
        attacked=any(
            finding.empirical_epsilon_lower is not None or finding.exact_epsilon is not None
            for finding in report.findings
            if not finding.subject
        ),
        n_rows=len(report.findings),
        n_failed=len(report.failed),
        limits=[
            (finding.scenario.replace("-", " "), row)
            for _, rows in headings.values()
            for finding, row in rows
            if finding.verdict == "known limit"
        ],
        failed=[
            _row(finding, f"failed-{place}") for place, finding in enumerate(report.failed, start=1)
        ],
        weakest=told[point.guarantee],
        also=[who(coalition) for coalition in point.equals],
        main=told[claimed(report.guarantees)],
        measured=None if measured is None else _row(measured, ""),
        same_claim=measured is not None
        and (measured.claim_epsilon, measured.delta or 0.0)
        == (point.guarantee.epsilon, point.guarantee.delta),
        measured_sentence=_measured_sentence(measured),
        changes=changes(report, point),
        advice=_advice(report, point),
        variants=[_variant(variant) for variant in found],
        coalitions=coalition_rows(report, point, places),
        untried=[
            row.who for row in coalition_rows(report, point, places) if row.verdict == NOT_TRIED
        ],
        curves=[curve_chart(curve) for curve in report.curves if curve.points],
        rocs=[(_whose(finding), roc_chart(finding)) for finding in report.findings if finding.roc],
        plane=(WIDTH, HEIGHT, SIDE),
        headings=[
            (
                name.replace(" ", "-"),
                *_HEADINGS_IN_WORDS[name],
                [row for _, row in rows if not row.subject],
                [row for _, row in rows if row.subject],
            )
            for name, (_, rows) in headings.items()
        ],
        average=f"{100 / report.task.domain_size:.2g}\N{NO-BREAK SPACE}%",
        verdicts=[
            (name, _sign(name), _kind(name), words) for name, words in VERDICTS_IN_WORDS.items()
        ],
        mode=_MODES[report.mode],
        seconds=figures.seconds(report.seconds),
        false_alarm=_one_in(report.false_alarm),
        family_level=_one_in(FAMILY_LEVEL),
        test_level=_one_in(TEST_LEVEL),
    )


def coalition_rows(
    report: AuditReport, point: WeakestPoint, places: Mapping[int, str] = MappingProxyType({})
) -> tuple[CoalitionRow, ...]:
    """
    Give one row a coalition, from the weakest point down.

    Args:
        report: Of the audit.
        point: Its weakest point.
        places: Of the findings on the page, by their identity.
    """
    best = best_promises(report.guarantees)
    tried = {f.coalition for f in report.findings if report.attacks_by(f.coalition)}
    tried.discard("nobody")
    rows = []
    for coalition in (*best, *sorted(tried - set(best))):
        attacks = report.attacks_by(coalition)
        first = attacks[0] if attacks else None
        promise = next((g for name, g in best.items() if name == coalition), None)
        claim = None if promise is None else promise.epsilon
        delta = None if promise is None else promise.delta
        if first is not None and first.claim_epsilon is not None:
            claim, delta = first.claim_epsilon, first.delta
        verdict = first.verdict if first is not None else NOT_TRIED
        row = CoalitionRow(
            who=who(coalition),
            link="" if first is None else places.get(id(first), ""),
            weakest=coalition == point.coalition,
            about=_about(attacks),
            claim="–" if claim is None else figures.privacy(claim),
            delta="" if claim is None or not delta else figures.privacy(delta),
            exact=_gained(None if first is None else first.exact_epsilon),
            measured=_gained(None if first is None else first.empirical_epsilon_lower),
            ceiling=_gained(None if first is None else first.ceiling),
            verdict=verdict,
            sign=_sign(verdict),
            kind=_kind(verdict),
        )
        rows.append((coalition != point.coalition, -(0.0 if claim is None else claim), row))
    return tuple(row for *_, row in sorted(rows, key=lambda ranked: ranked[:2]))


def _about(attacks: tuple[Finding, ...]) -> str:
    if not attacks:
        return "no attack by it on a user was run"
    more = len(attacks) - 1
    loose = sum(attack.verdict == "not contradicted" for attack in attacks[1:])
    mixed = loose and attacks[0].verdict == "reached"
    apart = f", {loose} of them not contradicted" if mixed else ""
    return _capital(attacks[0].title) + (f"; {more} more below{apart}" if more else "")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _title(report: AuditReport) -> str:
    if report.passed:
        return "Audit passed"
    if not report.findings:
        return "Audit not passed: nothing was checked"
    rows = "rows are not as they" if len(report.failed) > 1 else "row is not as it"
    return f"Audit not passed: {len(report.failed):,} {rows} must be"


def _measured_sentence(finding: Finding | None) -> str:
    """Say what an attack of the weakest coalition got."""
    if finding is None:
        return "No attack by this coalition was run, so nothing was measured."
    got = []
    if finding.empirical_epsilon_lower is not None:
        played = f" in {finding.trials:,} trials" if finding.trials else ""
        got.append(
            f"an attack on the running code showed an ε of at least "
            f"{figures.gained(finding.empirical_epsilon_lower)}{played}"
        )
    if finding.exact_epsilon is not None:
        got.append(f"by calculation it gains at least {figures.gained(finding.exact_epsilon)}")
    ceiling = (
        f" So many trials could show {figures.gained(finding.ceiling)} at most."
        if finding.ceiling is not None
        else ""
    )
    text = "; ".join(got)
    return f"{text[:1].upper()}{text[1:]}.{ceiling}"


def _advice(report: AuditReport, point: WeakestPoint) -> tuple[str, ...]:
    """Give what rows say of what to change: those that failed, and the weakest coalition's."""
    rows = (*report.failed, *point.attacks)
    return tuple(dict.fromkeys(row.advice for row in rows if row.advice))


def _variant(variant: Variant) -> tuple[str, str, str, str]:
    return (
        variant.name,
        figures.privacy(variant.weakest_epsilon),
        figures.privacy(variant.claimed_epsilon),
        _percent(variant.error),
    )


def _percent(share: float) -> str:
    percents = 100 * share
    written = f"{percents:.2g}" if percents < _HUNDRED else f"{percents:,.0f}"
    return f"{written}\N{NO-BREAK SPACE}%"


Shown = list[tuple[Finding, Row]]


def _headings(report: AuditReport) -> dict[Heading, tuple[str, Shown]]:
    """Give the rows under each heading, by name, with the heading's place on the page."""
    places = {name: name.replace(" ", "-") for name in HEADINGS}
    return {name: (place, _rows(report, name, place)) for name, place in places.items()}


def _rows(report: AuditReport, heading: Heading, place: str) -> Shown:
    """Give the rows under a heading, those that failed first; what they advise once."""
    rows = [finding for finding in report.findings if finding.heading == heading]
    shown: Shown = []
    advised: set[str] = set()
    for finding in sorted(rows, key=lambda finding: finding.passed):
        row = _row(finding, f"{place}-{len(shown) + 1}")
        told = dataclasses.replace(row, advice="") if row.advice in advised else row
        shown.append((finding, told))
        advised.add(row.advice)
    return shown


def _whose(finding: Finding) -> str:
    other = f"; not this task: {finding.subject}" if finding.subject else ""
    return who(finding.coalition) + other


def _row(finding: Finding, place: str) -> Row:
    return Row(
        id=place,
        title=_capital(finding.title),
        who="" if finding.coalition == "nobody" else who(finding.coalition),
        subject=finding.subject,
        sentence=finding.sentence,
        advice=finding.advice,
        verdict=finding.verdict,
        sign=_sign(finding.verdict),
        kind=_kind(finding.verdict),
        figures=tuple(_figures(finding)),
        details=tuple(_details(finding)),
    )


def _figures(finding: Finding) -> Iterable[tuple[str, str]]:
    if finding.claim_epsilon is not None:
        yield "Claimed ε", figures.privacy(finding.claim_epsilon)
    if finding.delta:
        yield "At δ", figures.privacy(finding.delta)
    if finding.exact_epsilon is not None:
        yield "Computed ε", figures.gained(finding.exact_epsilon)
    if finding.empirical_epsilon_lower is not None:
        yield "Measured ε, at least", figures.gained(finding.empirical_epsilon_lower)
    if finding.ceiling is not None:
        yield "Ceiling", figures.gained(finding.ceiling)
    for name, figure in (("Expected", finding.expected), ("Measured", finding.measured)):
        if figure is not None and not math.isnan(figure):
            yield name, _plain(figure)


def _details(finding: Finding) -> Iterable[tuple[str, str]]:
    yield "Scenario", finding.scenario
    if finding.theorem:
        yield "Theorem", finding.theorem
    if finding.neighbouring:
        yield "Neighbouring", finding.neighbouring
    if finding.assumptions:
        yield "Assumes", "; ".join(finding.assumptions)
    if finding.statistic:
        yield "Statistic", finding.statistic
    if finding.trials:
        yield "Trials", figures.count(finding.trials)
    if finding.advantage is not None and math.isfinite(finding.advantage):
        told = f"{finding.advantage:.4g}, by which true positives outweigh false ones"
        yield "Advantage of the best guess", told
    if finding.confidence is not None:
        yield "Confidence", _confidence(finding.confidence)
    if finding.tests:
        yield "Statistical tests", figures.count(finding.tests)


def _confidence(confidence: float) -> str:
    once = _one_in(1 - confidence)
    return f"wrong at most once in {once} runs" if once else "certain"


def _one_in(chance: float) -> str:
    """Write of how many one is a chance, rounded down; nothing for no chance."""
    # Six digits are meant: 1 - .99999995 is 4.9999999973737e-08.
    return "" if chance <= 0 else figures.count(math.floor(1 / float(f"{chance:.6g}") + 1e-6))


def _plain(figure: float) -> str:
    if math.isinf(figure):
        return "∞" if figure > 0 else "\N{MINUS SIGN}∞"
    text = f"{figure:,.4g}"
    text = figures.scientific(figure) if "e" in text else text
    return text.replace("-", "\N{MINUS SIGN}", 1)


def _gained(epsilon: float | None) -> str:
    return "–" if epsilon is None or math.isnan(epsilon) else figures.gained(epsilon)


def _sign(verdict: Verdict | str) -> str:
    if verdict == NOT_TRIED:
        return "–"
    return _SIGNS.get(verdict, "✓" if verdict in PASSING else "✗")


def _kind(verdict: Verdict | str) -> str:
    if verdict == NOT_TRIED:
        return "plain"
    if verdict == "known limit":
        return "warn"
    return "good" if verdict in PASSING else "bad"
