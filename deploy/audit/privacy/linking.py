"""Whether what a report draws for itself, its seed, tells which reports are one person's."""

import numpy as np

from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Outcome
from deploy.audit.privacy.messages import own_dummies, own_reports

_USERS = 200_000


def play_linking(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Link two rounds, and a person's own messages, by equal seeds: no oftener than by chance."""
    mechanism, task = audited.mechanism, audited.task
    if "seed" not in (mechanism.report_dtype.names or ()):
        return Outcome(findings=())
    first, second = (own_reports(mechanism, 0, _USERS, rng).reports["seed"] for _ in range(2))
    seeds = getattr(getattr(mechanism, "family", None), "seeds", 2**64)
    checks = Checks()
    linked = int((first == second).sum())
    checks.test("the same seed in two rounds", fit.of_number(linked, _USERS / seeds))
    if task.dummies.maximum and task.dummies.uniform:
        sent = own_dummies(task, mechanism, _USERS, rng)
        equal = int((sent.reports["seed"] == first[sent.trial]).sum())
        checks.test("a dummy with its user's seed", fit.of_number(equal, len(sent.reports) / seeds))
    neighbours = int((first[1:] == first[:-1]).sum())
    checks.test("the same seed in neighbouring users", fit.of_number(neighbours, _USERS / seeds))
    return Outcome(
        findings=(
            checks.finding(
                scenario="linking",
                title="Seeds link no two messages",
                heading="anonymity",
                coalition="analyzer",
                sentence="Every message has a fresh random seed, so that no two messages of one "
                "person, of one round or of two, can be told by their seeds to belong together.",
                trials=_USERS,
                expected=1 / seeds,
                measured=linked / _USERS,
            ),
        )
    )
