"""What an audit of a task came to."""

from dataclasses import dataclass
from typing import Final, Literal

from common.messages.guarantee import Guarantee
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.finding import Curve, Finding, Outcome
from deploy.audit.significance import FAMILY_LEVEL, MOST_TESTS

Mode = Literal["quick", "full"]
"""How much was drawn: see deploy.audit.audited.Effort."""

_NOT_OF_THE_CLAIM: Final = frozenset({"refuted", "not refuted"})
"""Verdicts on claims that somebody else made, or that are false on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """Everything that a run of the audit found, and what it takes to run it again."""

    task: Task
    task_digest: TaskDigest
    n_users: int
    """For whom the guarantees are stated."""
    mode: Mode
    seed: int
    """From which everything was drawn that is not a key."""
    version: str
    """Of the program that was audited, and that audited."""
    seconds: float
    """That the run took."""
    outcomes: tuple[Outcome, ...]
    """One a scenario, in the order in which they are to be read."""
    guarantees: tuple[Guarantee, ...]
    """Of the task at n_users; see common.accounting.guarantees.guarantees."""
    planted: str = ""
    """Name of the fault that was planted; nothing where the code was as it is."""
    idle: tuple[str, ...] = ()
    """Scenarios that had nothing to play on this task."""
    other_kinds: tuple[str, ...] = ()
    """Scenarios that were not played, since they are for tasks of another kind of value."""
    command: str = ""
    """What to type to run it again; nothing where it was not run by a command."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every row, scenario by scenario."""
        rows = tuple(finding for outcome in self.outcomes for finding in outcome.findings)
        return rows if self.tests <= MOST_TESTS else (*rows, _too_many(self.tests))

    @property
    def curves(self) -> tuple[Curve, ...]:
        """What is known of ε against the share of colluding users."""
        return tuple(curve for outcome in self.outcomes for curve in outcome.curves)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The rows that are not as they must be."""
        return tuple(finding for finding in self.findings if not finding.passed)

    @property
    def passed(self) -> bool:
        """Whether something was checked, and every row is as it must be."""
        return bool(self.findings) and not self.failed

    @property
    def tests(self) -> int:
        """Statistical decisions of all rows."""
        return sum(finding.tests for outcome in self.outcomes for finding in outcome.findings)

    @property
    def false_alarm(self) -> float:
        """The most that the chance can be of a failed row though all is as it should be."""
        return FAMILY_LEVEL * self.tests / MOST_TESTS

    def attacks_by(self, coalition: str) -> tuple[Finding, ...]:
        """
        Give the rows on what a coalition learns, the one to look at first at the head.

        First what failed; then what was measured of the least ε that is promised against this
        coalition, and of these what gained most. Claims that are not the task's are left out.
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
        return tuple(sorted(rows, key=lambda row: _rank(row, promised)))


def _too_many(tests: int) -> Finding:
    """Say that a run errs more often than it promises."""
    return Finding(
        scenario="audit",
        title="The audit decides no more than it may",
        heading="correctness",
        coalition="nobody",
        verdict="broken",
        sentence=f"Not so: {tests:,} statistical decisions were made; with more than "
        f"{MOST_TESTS:,} a run is wrong more often than it says.",
        advice="Play fewer scenarios at a time, with --scenario.",
    )


def _rank(row: Finding, promised: list[float]) -> tuple[bool, bool, int, bool, float]:
    gained = max(row.empirical_epsilon_lower or 0.0, row.exact_epsilon or 0.0)
    return (
        row.passed,
        row.aside,
        promised.index(row.claim_epsilon) if row.claim_epsilon in promised else len(promised),
        row.empirical_epsilon_lower is None,
        -gained,
    )
