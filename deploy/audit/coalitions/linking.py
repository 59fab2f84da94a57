"""Whether the seeds of reports reveal which reports are one user's."""

import numpy as np

from deploy.audit.checks import Checks
from deploy.audit.coalitions.messages import own_dummies, own_reports
from deploy.audit.finding import Findings
from deploy.audit.statistics import p_poisson
from deploy.audit.subject import AuditSubject

_USERS = 200_000


def run_linking(
    subject: AuditSubject,
    rng: np.random.Generator,
    kept: bool = False,  # noqa: FBT001, FBT002
) -> Findings:
    """
    Link two rounds, and one user's messages, by equal seeds.

    Args:
        subject: The task.
        rng: Source of all draws.
        kept: Whether devices keep their seed for the second round.
    """
    mechanism, task = subject.mechanism, subject.task
    if "seed" not in (mechanism.report_dtype.names or ()):
        return Findings(findings=())
    first, second = (own_reports(mechanism, 0, _USERS, rng).reports["seed"] for _ in range(2))
    second = first if kept else second
    seeds = getattr(getattr(mechanism, "family", None), "seeds", 2**64)
    checks = Checks()
    linked = int((first == second).sum())
    checks.test("the same seed in two rounds", p_poisson(linked, _USERS / seeds))
    if task.dummies.maximum and task.dummies.uniform:
        sent = own_dummies(task, mechanism, _USERS, rng)
        equal = int((sent.reports["seed"] == first[sent.trial]).sum())
        checks.test("a dummy with its user's seed", p_poisson(equal, len(sent.reports) / seeds))
    neighbours = int((first[1:] == first[:-1]).sum())
    checks.test("the same seed in neighbouring users", p_poisson(neighbours, _USERS / seeds))
    return Findings(
        findings=(
            checks.finding(
                scenario="linking",
                title="Seeds link no two messages",
                heading="anonymity",
                coalition="analyzer",
                sentence="Every message has a fresh random seed: seeds link no two messages of one "
                "user, of one round or of two.",
                trials=_USERS,
                expected=1 / seeds,
                measured=linked / _USERS,
            ),
        )
    )
