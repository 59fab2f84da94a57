"""The result of an audit of one task, its weakest point with remedies, and its JSON fields."""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

from shuffledp.audit.families.references import family_of
from shuffledp.audit.finding import HEADINGS, UNTESTED, Finding, Findings, Heading, failed
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
        rows = sorted(self.findings, key=lambda row: row.passed)
        return {name: tuple(row for row in rows if row.heading == name) for name in HEADINGS}

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
    def largest_gain(self) -> Finding | None:
        """The weakest point's most important attack with a gain, if any."""
        for row in self.attacks_by(self.weakest.coalition):
            if row.empirical_epsilon_lower is not None or row.exact_epsilon is not None:
                return row
        return None


@dataclass(frozen=True, slots=True)
class Change:
    """A possible change to a task, and its effect."""

    action: str
    """A short instruction; if `helps` is false, a change without effect."""
    why: str
    helps: bool = True


def changes(report: AuditReport) -> tuple[Change, ...]:
    """Return changes that help against the weakest point, best first, then those that do not."""
    task, weakest = report.task, report.weakest.coalition
    if weakest in {"shuffler+analyzer", "issuer+analyzer"}:
        return (_noise(task), _INDEPENDENT_OPERATORS, _MORE_REPORTS)
    if weakest == "both-shufflers+analyzer":
        return (_TWO_ORGANIZATIONS, _noise(task))
    if weakest == "analyzer+sybils":
        return (_TOKENS, _noise(task))
    if not task.amplified:
        relying = _ASK_ONCE if task.protocol_row.amplified else _RELY_ON_A_SHUFFLER
        return (_noise(task), relying, _MORE_USERS)
    more_users = Change(
        f"Raise n_min, now {task.n_min:,}",
        "More people then hide each report before anything is released.",
    )
    dummies = (_MORE_DUMMIES,) if task.protocol_row.dummy_distributions else ()
    return (more_users, *dummies, _noise(task))


def _noise(task: Task) -> Change:
    other = rounded_up(min(task.local_epsilon / 2, DeviceCaps.local_epsilon_cap))
    plan = f"`shuffledp plan --local-cap {other}` finds the parameters with the least error"
    if task.relay:
        return Change(
            "Give up the second shuffler, and let every device add noise to its report",
            "No protocol with local noise has two shufflers. One such as mixdump or od-hp, with "
            f"local_epsilon = {other} or less, holds against everybody, in place of the claim "
            "against the analyzer and one of two shufflers. Shares then become less exact; "
            f"{plan}.",
        )
    if math.isinf(task.local_epsilon):
        return Change(
            "Let every device add noise to its report",
            f"Reports of the protocol {task.protocol} are not randomized: anyone who knows "
            "which reports are yours may learn your value. Publish the next task under a protocol "
            "with local noise, such as mixdump or od-hp, and with local_epsilon = "
            f"{other} or less. Shares then become less exact; {plan}.",
        )
    return Change(
        family_of(task).less_revealing(other),
        "Each device then adds more noise to its report, and this noise is all that protects a "
        "person from somebody who knows which report is theirs. The result becomes less exact; "
        f"{plan}. Tasks are immutable: publish a new one.",
    )


_ASK_ONCE: Final = Change(
    "Omit population if these people are never asked again",
    "Permanent responses to a population are the same in every task, so no amplification by the "
    "shuffler is claimed; for a single task it can be.",
)
_INDEPENDENT_OPERATORS: Final = Change(
    "Let different organizations operate the shuffler, the issuer and the analyzer",
    "Let them share no machine, key or administrator, and forbid pooling by contract. This does "
    "not change the figure, but makes it unlikely that the two ever pool what they saw. As long as "
    "one organization operates both, no better figure holds.",
)
_TWO_ORGANIZATIONS: Final = Change(
    "Let two organizations operate the two shufflers",
    "The claim against the analyzer and one shuffler holds as long as the other is honest. Let the "
    "two share no machine, key or administrator, and forbid pooling by contract.",
)
_TOKENS: Final = Change(
    "Require one-time tokens: publish the next task with --token-key",
    "Without them anybody, the analyzer too, can fill a batch with submissions of their own and "
    "subtract them. With tokens, that takes the issuer's help or people who are entitled to them.",
)
_MORE_REPORTS: Final = Change(
    "More users, a larger n_min or a few more dummies do not help here",
    "They hide a report among others from the analyzer alone. The shuffler and analyzer together "
    "know which reports are yours.",
    helps=False,
)
_RELY_ON_A_SHUFFLER: Final = Change(
    "Choose a protocol that relies on a shuffler, such as od-hp",
    "Then the analyzer cannot link reports to people, and learns much less about one person at the "
    "same error. What the shuffler and analyzer learn together does not change.",
)
_MORE_USERS: Final = Change(
    "More users do not help here",
    "Only its own noise protects each report. More users make shares more exact.",
    helps=False,
)
_MORE_DUMMIES: Final = Change(
    "Raise dummies_per_user",
    "Dummies hide a report among others without more users; they cost traffic.",
)


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
