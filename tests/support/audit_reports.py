"""Fixed audit reports on the demo's task, and on one without local noise."""

import dataclasses
import math
from functools import cache
from typing import Any, Final

from shuffledp.analyzer.task_builder import complete
from shuffledp.audit.finding import Finding
from shuffledp.audit.harness.tasks import FAR_FUTURE
from shuffledp.audit.report.audit_report import AuditReport
from shuffledp.audit.statistics import CONFIDENCE
from shuffledp.common.accounting.guarantees import guarantees
from shuffledp.common.crypto.signing import digest_of
from shuffledp.common.messages.guarantee import REPLACE_ONE
from shuffledp.common.task.task import Task
from shuffledp.deploy.tasks.drafts import DEMO_PARAMETERS, closing_draft
from tests.support.protocol_tasks import ANALYZER_KEY, SHUFFLER_KEY, protocol_task
from tests.support.tokens import TOKENS

N_USERS: Final = 20_000


@cache
def demo_task() -> Task:
    """Return the demo's task, with 915 items."""
    key = SHUFFLER_KEY.public_key().raw
    fields = {"domain_size": 915, **DEMO_PARAMETERS}
    draft = closing_draft(fields, N_USERS, now=FAR_FUTURE, shuffler_key=key)
    draft = dataclasses.replace(draft, tokens=TOKENS)
    return complete(draft, analyzer_key=ANALYZER_KEY.public_key().raw, nonce=bytes(range(32)))


def finding(**changes: Any) -> Finding:
    """Return the finding of a check that passed, with some fields changed."""
    fields: dict[str, Any] = {
        "scenario": "randomizer",
        "title": "The randomizer's distribution",
        "heading": "correctness",
        "coalition": "nobody",
        "verdict": "holds",
        "sentence": "Reports have the distribution that the task states.",
        "statistic": "smallest p of 3 tests: 0.21 (buckets)",
        "trials": 2_000_000,
        "confidence": CONFIDENCE,
        "tests": 3,
        "delta": 0.0,
        "theorem": "a theorem",
        "neighbouring": REPLACE_ONE,
        "assumptions": ("the encryption holds",),
    }
    return Finding(**fields | changes)


@cache
def demo_report() -> AuditReport:
    """Return a report on the demo's task in which every check passed."""
    return report_of(demo_task(), (_of_the_pair(4.0, 3.98), *_REST))


@cache
def noiseless_report() -> AuditReport:
    """Return a report on a task without local noise."""
    return report_of(protocol_task("puredump"), (_of_the_pair(math.inf, 11.97), *_REST))


@cache
def failed_report() -> AuditReport:
    """Return a report on the demo's task in which an attack beat the claim."""
    broken = dataclasses.replace(
        _ANALYZER,
        title="A batch that came in order",
        verdict="contradicted",
        empirical_epsilon_lower=2.7,
        sentence="The analyzer told two values apart far better than the claim allows.",
        advice="Find out why the batch was not permuted.",
    )
    return report_of(demo_task(), (_of_the_pair(4.0, 3.98), broken, *_REST))


def report_of(task: Task, findings: tuple[Finding, ...]) -> AuditReport:
    """Return a report with these findings."""
    return AuditReport(
        task=task,
        task_digest=digest_of(task.to_bytes()),
        n_users=N_USERS,
        mode="quick",
        seed=20_261_121,
        version="1.2.3",
        seconds=312.4,
        rows=findings,
        guarantees=guarantees(task, N_USERS, 0),
        command="shuffledp audit task.json --quick --seed 20261121",
    )


def _of_the_pair(claim: float, measured: float) -> Finding:
    return finding(
        scenario="linked-report",
        title="One person's report, known to be theirs",
        heading="anonymity",
        coalition="shuffler+analyzer",
        verdict="tight" if math.isfinite(claim) else "unprotected",
        advice="Lower local_epsilon, or let different organizations operate the two.",
        claim_epsilon=claim,
        exact_epsilon=claim,
        empirical_epsilon_lower=measured,
        ceiling=11.98,
        trials=4_000_000,
    )


_ANALYZER: Final = finding(
    scenario="shuffled-batch",
    title="A whole batch, everybody else known",
    heading="anonymity",
    coalition="analyzer",
    verdict="not contradicted",
    sentence="The analyzer counts what supports either value among all reports.",
    claim_epsilon=0.108_169_5,
    delta=1e-6,
    exact_epsilon=0.107_9,
    empirical_epsilon_lower=0.0612,
    ceiling=11.98,
    trials=4_000_000,
    advantage=0.0123,
)
_REST: Final = (
    _ANALYZER,
    dataclasses.replace(
        _ANALYZER,
        title="A batch of which nine users in ten collude",
        coalition="analyzer+users",
        claim_epsilon=0.3611,
    ),
    finding(title="Ciphertexts", heading="anonymity", coalition="shuffler", claim_epsilon=0.0),
    finding(
        scenario="false-claim",
        heading="anonymity",
        coalition="analyzer",
        verdict="refuted",
        claim_epsilon=0.01,
        empirical_epsilon_lower=0.4,
    ),
    finding(title="w" * 300, confidence=None, statistic="4 facts checked"),
    finding(
        heading="sender disruption",
        coalition="users",
        verdict="known limit",
        advice="Let every person submit once: give out tokens.",
        expected=0.011,
        measured=0.0112,
        tests=1,
    ),
    finding(heading="server disruption", coalition="shuffler", expected=1.0, measured=1.0),
)
