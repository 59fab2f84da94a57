"""The result of an audit of one task, its weakest point with remedies, and its JSON fields."""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from shuffledp.audit.families.references import family_of
from shuffledp.audit.finding import UNTESTED, Finding, Findings, Heading, failed
from shuffledp.audit.scenario import Scenario
from shuffledp.audit.statistics import FAMILY_LEVEL, MAX_TESTS
from shuffledp.common.device_caps import DeviceCaps
from shuffledp.common.messages.guarantee import Coalition, Guarantee, rounded_up
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.pages.guarantee_sentences import best_guarantees

_OTHER_CLAIM_VERDICTS: Final = frozenset({"refuted", "not refuted"})
"""Verdicts on claims that are not the task's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """All findings of a run, and the settings that repeat it."""

    task: Task
    task_digest: TaskDigest
    n_users: int
    mode: Literal["quick", "full"]
    """Sample sizes; see scenario.py."""
    seed: int
    version: str
    seconds: float
    rows: Findings
    """Findings of all scenarios, in report order."""
    guarantees: tuple[Guarantee, ...]
    idle: tuple[str, ...] = ()
    """Scenarios without findings on this task."""
    other_kinds: tuple[str, ...] = ()
    """Scenarios skipped because they are for other kinds of value."""
    other_shufflers: tuple[str, ...] = ()
    """Scenarios skipped because they are for tasks with another number of shufflers."""
    command: str = ""
    """Command line that repeats the run, if any."""

    @property
    def shufflers(self) -> str:
        """The number of the task's shufflers, in words."""
        return "two shufflers" if self.task.relay else "one shuffler"

    @property
    def findings(self) -> Findings:
        """All findings, scenario by scenario, plus a failed one if there are too many tests."""
        if self.tests <= MAX_TESTS:
            return self.rows
        too_many = Finding(
            scenario="audit",
            title="The number of statistical tests is within its limit",
            heading="correctness",
            verdict="broken",
            sentence=f"The run made {self.tests:,} statistical tests; with more than "
            f"{MAX_TESTS:,}, false alarms are more frequent than stated.",
            advice="Run fewer scenarios at a time, with --scenario.",
        )
        return (*self.rows, too_many)

    @property
    def failed(self) -> Findings:
        """Findings that did not pass."""
        return failed(self.findings)

    @property
    def tested(self) -> Findings:
        """Findings that tested something."""
        return tuple(row for row in self.findings if row.verdict not in UNTESTED)

    @property
    def passed(self) -> bool:
        """Whether something was tested, and no finding failed."""
        return bool(self.tested) and not self.failed

    @property
    def headline(self) -> str:
        """Number of checks that passed or failed, and of those that tested nothing."""
        if not self.tested:
            return "nothing was checked"
        n_tested, n_failed = len(self.tested), len(self.failed)
        verdicts = [row.verdict for row in self.findings]
        untested = "".join(
            f", {verdicts.count(name):,} {name}" for name in UNTESTED if name in verdicts
        )
        if n_failed:
            return f"{n_failed:,} of {n_tested:,} checks failed{untested}"
        if untested:
            return f"{n_tested:,} passed{untested}"
        return "The check passed" if n_tested == 1 else f"All {n_tested:,} checks passed"

    @property
    def tests(self) -> int:
        """Number of statistical tests in all findings."""
        return sum(finding.tests for finding in self.rows)

    @property
    def by_heading(self) -> dict[Heading, Findings]:
        """Findings by heading, in the order of the headings; those that failed come first."""
        names, rows = get_args(Heading), sorted(self.findings, key=lambda row: row.passed)
        return {name: tuple(row for row in rows if row.heading == name) for name in names}

    @property
    def false_alarm(self) -> float:
        """Upper bound on the probability that correct code fails."""
        return FAMILY_LEVEL * self.tests / MAX_TESTS

    def attacks_by(self, coalition: str) -> Findings:
        """
        Return a coalition's attacks on a user's anonymity, the most important first.

        Failed findings come first, then the task's own claims; within a group, small claims, then
        measured attacks, then large gains. Other designs and false claims are left out.
        """
        stated = sorted(g.epsilon for g in self.guarantees if g.coalition == coalition)
        rows = [
            row
            for row in self.findings
            if (row.heading, row.coalition, row.subject) == ("anonymity", coalition, "")
            and row.verdict not in _OTHER_CLAIM_VERDICTS
        ]

        def rank(row: Finding) -> tuple[bool, bool, int, bool, float]:
            claim = row.claim_epsilon
            return (
                row.passed,
                row.aside,
                stated.index(claim) if claim in stated else len(stated),
                row.empirical_epsilon_lower is None,
                -max(row.empirical_epsilon_lower or 0.0, row.exact_epsilon or 0.0),
            )

        return tuple(sorted(rows, key=rank))

    @property
    def weakest(self) -> Guarantee:
        """The strongest guarantee against the coalition with the largest guaranteed ε."""
        best = best_guarantees(self.guarantees).values()
        return max(best, key=lambda guarantee: guarantee.epsilon)

    @property
    def equally_weak(self) -> list[Coalition]:
        """Other coalitions with the same ε."""
        best, weakest = best_guarantees(self.guarantees), self.weakest
        del best[weakest.coalition]
        return [name for name, other in best.items() if other.epsilon == weakest.epsilon]

    @property
    def lower_epsilon(self) -> str:
        """A local ε that reveals less, rounded up."""
        return rounded_up(min(self.task.local_epsilon / 2, DeviceCaps.local_epsilon_cap))

    @property
    def largest_gain(self) -> Finding | None:
        """The weakest point's most important attack with a gain, if any."""
        for row in self.attacks_by(self.weakest.coalition):
            if row.empirical_epsilon_lower is not None or row.exact_epsilon is not None:
                return row
        return None


_ACTIONS: Final = {
    "one shuffler": "Give up the second shuffler, and let every device add noise to its report",
    "first noise": "Let every device add noise to its report",
    "ask once": "Omit population if these people are never asked again",
    "operators": "Let different organizations operate the shuffler, the issuer and the analyzer",
    "organizations": "Let two organizations operate the two shufflers",
    "tokens": "Require one-time tokens: publish the next task with --token-key",
    "shuffler": "Choose a protocol that relies on a shuffler, such as od-hp",
    "dummies": "Raise dummies_per_user",
    "more reports": "More users, a larger n_min or a few more dummies do not help here",
    "more users": "More users do not help here",
}


def changes(report: AuditReport) -> dict[str, str]:
    """
    Return possible changes to a task as instructions, by name; pages/audit.html says why.

    Those that help against the weakest point come first, best first. Others have no effect.
    """
    task, weakest = report.task, report.weakest.coalition
    lower = family_of(task).less_revealing(report.lower_epsilon)
    actions = _ACTIONS | {"noise": lower, "n_min": f"Raise n_min, now {task.n_min:,}"}
    noise = "first noise" if math.isinf(task.local_epsilon) else "noise"
    if weakest in {"shuffler+analyzer", "issuer+analyzer"}:
        names = [noise, "operators", "more reports"]
    elif weakest == "both-shufflers+analyzer":
        names = ["organizations", "one shuffler"]
    elif weakest == "analyzer+sybils":
        names = ["tokens", noise]
    elif not task.amplified:
        names = [noise, "ask once" if task.protocol_row.amplified else "shuffler", "more users"]
    else:
        names = ["n_min", *["dummies"] * bool(task.protocol_row.dummy_distributions), noise]
    if task.relay:
        names = ["one shuffler" if name == noise else name for name in names]
    return {name: actions[name] for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestResult:
    """The result of one scenario's self-test."""

    scenario: Scenario
    honest: Findings
    """Findings without the weakness."""
    weakened: Findings
    """Findings with the weakness; none if it does not apply to this task."""

    @property
    def applies(self) -> bool:
        """Whether the weakness applies to this task."""
        verdicts = {row.verdict for row in self.weakened}
        # A scenario may have passed some checks before it stopped for lack of a reference.
        return bool(failed(self.weakened) or (verdicts and "not covered" not in verdicts))

    @property
    def outcome(self) -> str:
        """The result in words; in capitals if the self-test fails."""
        if failed(self.honest):
            return "FAILS WITHOUT THE WEAKNESS"
        if not self.applies:
            return "does not apply to this task"
        if any(row.verdict == "error" for row in self.weakened):
            return "COULD NOT BE RUN"
        return "weakness detected" if failed(self.weakened) else "WEAKNESS NOT DETECTED"

    @property
    def detected(self) -> bool:
        """Whether the scenario fails with the weakness and passes without it."""
        return self.outcome == "weakness detected"

    @property
    def passed(self) -> bool:
        """Whether the weakness is detected, or does not apply and nothing fails without it."""
        return self.detected or self.outcome == "does not apply to this task"


def as_json(report: AuditReport) -> dict[str, Any]:
    """Return the fields of audit.json."""
    names = (
        *("n_users", "mode", "seed", "command", "idle", "other_kinds", "other_shufflers"),
        *("seconds", "passed", "tests", "false_alarm", "guarantees", "findings"),
    )
    return {
        "shuffledp": report.version,
        "task_digest": report.task_digest.hex(),
        **{name: getattr(report.task, name) for name in ("protocol", "kind", "local_epsilon")},
        **{name: getattr(report, name) for name in names},
        "weakest_coalition": report.weakest.coalition,
    }


def self_test_json(result: SelfTestResult) -> dict[str, Any]:
    """Return the fields of a self-test's result."""
    return {
        "scenario": result.scenario.name,
        "weakness": result.scenario.weakness.sentence,
        "applies": result.applies,
        "rang": result.detected,
        "said": [row.sentence for row in failed(result.weakened)],
    }
