"""The result of an audit of one task."""

from dataclasses import dataclass
from typing import Final, Literal

from common.messages.guarantee import Guarantee
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.finding import Curve, Finding, Findings
from deploy.audit.scenario import Scenario
from deploy.audit.statistics import FAMILY_LEVEL, MAX_TESTS

Mode = Literal["quick", "full"]
"""The sample sizes: see scenario.py."""

_NOT_OF_THE_CLAIM: Final = frozenset({"refuted", "not refuted"})
"""Verdicts on claims that are not the task's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """All findings of a run, and everything needed to repeat it."""

    task: Task
    task_digest: TaskDigest
    n_users: int
    """Users for whom the guarantees are stated."""
    mode: Mode
    seed: int
    """Seed of every draw but keys and those of running services."""
    version: str
    """Version of the program."""
    seconds: float
    outcomes: tuple[Findings, ...]
    """One for each scenario, in reading order."""
    guarantees: tuple[Guarantee, ...]
    """The task's guarantees at n_users."""
    idle: tuple[str, ...] = ()
    """Scenarios that have nothing to run on this task."""
    other_kinds: tuple[str, ...] = ()
    """Scenarios for other kinds of value, which were not run."""
    command: str = ""
    """Command that repeats the run, if a command ran it."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, scenario by scenario."""
        rows = tuple(finding for outcome in self.outcomes for finding in outcome.findings)
        return rows if self.tests <= MAX_TESTS else (*rows, _too_many(self.tests))

    @property
    def curves(self) -> tuple[Curve, ...]:
        """ε against the share of colluding users."""
        return tuple(curve for outcome in self.outcomes for curve in outcome.curves)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings that did not pass."""
        return tuple(finding for finding in self.findings if not finding.passed)

    @property
    def passed(self) -> bool:
        """Whether there are findings, and all passed."""
        return bool(self.findings) and not self.failed

    @property
    def tests(self) -> int:
        """Statistical decisions of all findings."""
        return sum(finding.tests for outcome in self.outcomes for finding in outcome.findings)

    @property
    def false_alarm(self) -> float:
        """Upper bound of the probability that an honest program fails."""
        return FAMILY_LEVEL * self.tests / MAX_TESTS

    def attacks_by(self, coalition: str) -> tuple[Finding, ...]:
        """
        Return the attacks of a coalition on a user's anonymity, the most important first.

        Failed findings come first, then measurements of the smallest claim against the coalition
        by their gain. Claims that are not the task's are left out.
        """
        promised = sorted(g.epsilon for g in self.guarantees if g.coalition == coalition)
        rows = [
            finding
            for finding in self.findings
            if finding.heading == "anonymity"
            and finding.coalition == coalition
            and not finding.subject
            and finding.verdict not in _NOT_OF_THE_CLAIM
        ]

        def rank(row: Finding) -> tuple[bool, bool, int, bool, float]:
            claim = row.claim_epsilon
            return (
                row.passed,
                row.aside,
                promised.index(claim) if claim in promised else len(promised),
                row.empirical_epsilon_lower is None,
                -max(row.empirical_epsilon_lower or 0.0, row.exact_epsilon or 0.0),
            )

        return tuple(sorted(rows, key=rank))


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """The result of breaking one scenario."""

    scenario: Scenario
    failed: tuple[Finding, ...]
    """Findings that failed with the weakness."""
    failed_before: tuple[Finding, ...]
    """Findings that failed without it."""
    applies: bool
    """Whether the scenario has anything to break on this task."""

    @property
    def rang(self) -> bool:
        """Whether the weakness, and nothing else, failed the scenario."""
        return bool(self.failed) and not self.failed_before


def _too_many(tests: int) -> Finding:
    """Return the finding of a run that errs more often than it states."""
    return Finding(
        scenario="audit",
        title="The audit makes no more decisions than it may",
        heading="correctness",
        coalition="nobody",
        verdict="broken",
        sentence=f"{tests:,} statistical decisions were made; with more than {MAX_TESTS:,} a run "
        "raises false alarms more often than it states.",
        advice="Run fewer scenarios at a time, with --scenario.",
    )
