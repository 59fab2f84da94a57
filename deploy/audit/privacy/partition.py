"""An analyzer that cuts its users into groups, by tasks or keys, to have fewer in each."""

import dataclasses
import math
from typing import Any

import numpy as np

from common.accounting.guarantees import claimed_guarantee
from common.messages.guarantee import rounded_up
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding, Outcome
from deploy.audit.game_rows import computed_row
from deploy.audit.privacy.crowd_attack import proven_epsilon


def play_partition(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Compute what is left in the smallest group that is ever released, and check what names it."""
    if audited.terms.reduction is None:
        return Outcome(findings=())
    return Outcome(findings=(_smallest_group(audited), _names(audited, rng)))


def _smallest_group(audited: Audited) -> Finding:
    task, terms = audited.task, audited.terms
    return computed_row(
        claimed=dataclasses.replace(
            claimed_guarantee(terms, task.n_min), epsilon=task.central_epsilon
        ),
        exact=proven_epsilon(terms, terms.crowd(task.n_min)),
        scenario="partition",
        title=f"Users cut into groups of n_min = {task.n_min:,}",
        heading="anonymity",
        sentence="However the analyzer cuts its users into tasks, none is released with fewer than "
        f"n_min users, and every device has checked what holds then: "
        f"ε = {rounded_up(task.central_epsilon)}, as the task states it, rounded up.",
        advice="Raise n_min: it bounds the smallest group. The shuffler's minimum_batch and the "
        "devices' total_central_epsilon_cap say what they go along with.",
    )


def _names(audited: Audited, rng: np.random.Generator) -> Finding:
    """Check that no two tasks that differ in anything go by one name."""
    checks, more = Checks(), math.nextafter(audited.task.delta, 1)
    # With room for each change by itself: two at once would be told apart by either.
    task = dataclasses.replace(
        audited.task,
        target_size=max(2, audited.task.target_size),
        budget_delta=max(more, audited.task.budget_delta),
    )
    digests = {task.to_bytes()}
    changed: dict[str, dict[str, Any]] = {
        "another nonce": {"nonce": rng.bytes(len(task.nonce))},
        "another key of the analyzer": {"analyzer_key": rng.bytes(len(task.analyzer_key))},
        "another key of the shuffler": {"shuffler_key": rng.bytes(len(task.shuffler_key))},
        "another n_min": {"n_min": task.n_min - 1 or 2},
        "another deadline": {"deadline": task.deadline + 1},
        "another delta": {"delta": more},
    }
    for name, fields in changed.items():
        other = dataclasses.replace(task, **fields).to_bytes()
        checks.must(f"{name} makes another task", other not in digests)
        digests.add(other)
    return checks.finding(
        scenario="partition",
        title="Keys and parameters are part of a task's name",
        heading="anonymity",
        coalition="analyzer",
        sentence="Whoever is given another key, deadline or n_min is given a task of another name, "
        "which anybody can compare.",
        advice="Publish the digest of a task where all can see it, so that users can compare.",
    )
