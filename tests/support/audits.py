"""Small audits of small tasks."""

import dataclasses
from typing import Final

from shuffledp.audit.harness.tasks import sample_task
from shuffledp.audit.scenario import AuditSubject, SampleSizes
from shuffledp.common.task.task import Task

LITTLE: Final = SampleSizes(
    games=200_000, batches=200_000, reports=100_000, devices=300, orders=20_000, users=60
)


def audited(task: Task | None = None, *, n_users: int = 1000, **sizes: int) -> AuditSubject:
    """Return the subject of an audit: a task, or local hashing with one dummy per user."""
    task = task or sample_task(
        protocol="od-hp",
        domain_size=100,
        buckets=11,
        local_epsilon=2.0,
        dummies_per_user=1.0,
        n_min=n_users,
        target_size=n_users,
    )
    return AuditSubject(task=task, n_users=n_users, sizes=dataclasses.replace(LITTLE, **sizes))
