"""A play of the audited services that is small enough for a test, and its rows by title."""

import dataclasses
from typing import Any

import numpy as np

from analyzer.task_builder import complete
from common.crypto.hpke import HpkePrivateKey
from common.task.task import Task
from deploy.audit.audited import QUICK, Audited
from deploy.audit.finding import Finding
from deploy.audit.services.collect import collect
from deploy.audit.services.plan import plan_for
from deploy.audit.services.record import Record
from deploy.audit.services.scenarios import findings
from tests.support.tasks import draft

USERS = 160


def audited_task(**changes: Any) -> Task:
    """Give a task of plain items with two dummies a user, some fields changed."""
    fields: dict[str, Any] = {
        "protocol": "mixdump",
        "domain_size": 30,
        "buckets": 0,
        "dummies_per_user": 2,
        "local_epsilon": 4.0,
        "n_min": 1000,
        "target_size": 5000,
    }
    key = HpkePrivateKey.generate().public_key().raw
    return complete(draft(key, **fields | changes), analyzer_key=key, nonce=bytes(32))


def audited(task: Task | None = None, *, users: int = USERS) -> Audited:
    """Say what is audited: a task as so many users answer it."""
    task = task or audited_task()
    effort = dataclasses.replace(QUICK, users=users)
    return Audited(task_bytes=task.to_bytes(), n_users=users, effort=effort)


def played(of: Audited | None = None, *, in_child: bool = False, seed: int = 1) -> Record:
    """Play the services: in this process, which a test may have changed, unless told otherwise."""
    return collect(plan_for(of or audited(), np.random.default_rng(seed)), in_child=in_child)


def rows(record: Record, seed: int = 2) -> dict[str, Finding]:
    """Give what the play shows, by title."""
    return {row.title: row for row in findings(record, np.random.default_rng(seed))}
