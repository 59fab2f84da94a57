"""
An analyzer that splits its users into groups, by tasks or keys, to have fewer in each; and whether
seeds reveal which reports are one user's.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from common.accounting.guarantees import claimed_guarantee
from common.messages.guarantee import rounded_up
from common.task.task import Task
from deploy.audit.coalitions.messages import proven_epsilon
from deploy.audit.distributions.trials import own_dummies, own_reports
from deploy.audit.finding import Checks, Finding, Findings
from deploy.audit.game import game_row
from deploy.audit.scenario import AuditSubject
from deploy.audit.statistics import p_poisson

_LINKED_USERS: Final = 200_000


def without_n_min(task: Task) -> bytes:
    """Encode a task without its n_min."""
    return dataclasses.replace(task, n_min=2).to_bytes()


def run_partition(
    subject: AuditSubject,
    rng: np.random.Generator,
    *,
    encode: Callable[[Task], bytes] = Task.to_bytes,
) -> Findings:
    """Compute the claim for the smallest group that is released, and check that tasks differ."""
    if subject.terms.reduction is None:
        return Findings()
    return Findings((_smallest_group(subject), _digests(subject, rng, encode)))


def _smallest_group(subject: AuditSubject) -> Finding:
    task, terms = subject.task, subject.terms
    return game_row(
        claimed=dataclasses.replace(
            claimed_guarantee(terms, task.n_min), epsilon=task.central_epsilon
        ),
        exact=proven_epsilon(terms, terms.crowd(task.n_min)),
        scenario="partition",
        title=f"Users cut into groups of n_min = {task.n_min:,}",
        sentence="However the analyzer cuts its users into tasks, none is released with fewer than "
        f"n_min users, and every device has checked what holds then: "
        f"ε = {rounded_up(task.central_epsilon)}, as the task states it, rounded up.",
        advice="Raise n_min: it bounds the smallest group. The shuffler's minimum_batch and the "
        "devices' total_central_epsilon_cap say what they go along with.",
    )


def _digests(
    subject: AuditSubject, rng: np.random.Generator, encode: Callable[[Task], bytes]
) -> Finding:
    """Check that tasks that differ have different bytes, and so different encodings."""
    checks, more = Checks(), math.nextafter(subject.task.delta, 1)
    # Leaves room for each change alone.
    task = dataclasses.replace(
        subject.task,
        target_size=max(subject.task.n_min + 1, subject.task.target_size),
        budget_delta=max(more, subject.task.budget_delta),
    )
    encodings = {encode(task)}
    changed: dict[str, dict[str, Any]] = {
        "another nonce": {"nonce": rng.bytes(len(task.nonce))},
        "another key of the analyzer": {"analyzer_key": rng.bytes(len(task.analyzer_key))},
        "another key of the shuffler": {"shuffler_key": rng.bytes(len(task.shuffler_key))},
        "another n_min": {"n_min": task.n_min + 1},
        "another deadline": {"deadline": task.deadline + 1},
        "another delta": {"delta": more},
    }
    for name, fields in changed.items():
        other = encode(dataclasses.replace(task, **fields))
        checks.must(f"{name} makes another task", other not in encodings)
        encodings.add(other)
    return checks.finding(
        scenario="partition",
        title="Keys and parameters are part of a task's digest",
        heading="anonymity",
        coalition="analyzer",
        sentence="Users who are given another key, deadline or n_min are given a task with another "
        "digest, which they can compare.",
        advice="Publish the digest of a task where all can see it, so that users can compare.",
    )


def run_linking(subject: AuditSubject, rng: np.random.Generator, *, kept: bool = False) -> Findings:
    """
    Link two rounds, and one user's messages, by equal seeds.

    `kept`: devices keep their seed for the second round.
    """
    mechanism, task, checks = subject.mechanism, subject.task, Checks()
    if "seed" not in (mechanism.report_dtype.names or ()):
        return Findings()
    n_users = _LINKED_USERS
    first, second = (own_reports(mechanism, 0, n_users, rng).reports["seed"] for _ in range(2))
    second = first if kept else second
    seeds = getattr(getattr(mechanism, "family", None), "seeds", 2**64)
    linked = int((first == second).sum())
    checks.test("the same seed in two rounds", p_poisson(linked, n_users / seeds))
    if task.dummies.maximum and task.dummies.uniform:
        sent = own_dummies(task, mechanism, n_users, rng)
        equal = int((sent.reports["seed"] == first[sent.trial]).sum())
        checks.test("a dummy with its user's seed", p_poisson(equal, len(sent.reports) / seeds))
    neighbours = int((first[1:] == first[:-1]).sum())
    checks.test("the same seed in neighbouring users", p_poisson(neighbours, n_users / seeds))
    row = checks.finding(
        scenario="linking",
        title="Seeds link no two messages",
        heading="anonymity",
        coalition="analyzer",
        sentence="Every message has a fresh random seed: seeds link no two messages of one user, "
        "of one round or of two.",
        trials=n_users,
        expected=1 / seeds,
        measured=linked / n_users,
    )
    return Findings((row,))
