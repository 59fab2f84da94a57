"""A task with one change at a time: the figures of a recommendation."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from analyzer.finalize import mixture_of
from common.accounting.guarantees import guarantees
from common.errors import AccountingError, TaskError
from common.mechanisms.registry import mechanism_of, specify
from common.messages.guarantee import Coalition, claimed, rounded_up
from common.task.dummy_spec import DummySpec
from common.task.task import Task
from deploy.audit.recommendations import (
    WeakestPoint,
    best_promises,
    lower_local_epsilon,
    stated_local_epsilon,
)
from deploy.audit.report import AuditReport

_NOISY: Final = ("mixdump", "od-hp", "hybrid", "sh")
"""Protocols with local noise, tried in this order for a task without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The task with one change, its guarantees and its error."""

    name: str
    weakest_epsilon: float
    """Against the coalition that is the weakest point now."""
    claimed_epsilon: float
    """The task's claim against the analyzer, if the shuffler is honest."""
    error: float
    """Standard error of the share of an average value."""


def variants(report: AuditReport, point: WeakestPoint) -> tuple[Variant, ...]:
    """
    Compute the task as it is and with one change at a time, where its protocol allows the change.

    There are none for other kinds of value than items: `shuffledp plan` weighs their parameters.

    Cost: a few searches for ε, tenths of a second each.
    """
    task, n = report.task, report.n_users
    if task.kind != "categorical":
        return ()
    wanted: list[tuple[str, Callable[[], Task], int]] = [("The task as it is", lambda: task, n)]
    other = lower_local_epsilon(task)
    name = f"local_epsilon = {rounded_up(other)} instead of {stated_local_epsilon(task)}"
    wanted.append((name, lambda: with_noise(task, other), n))
    wanted.append(("Twice as many users", lambda: task, 2 * n))
    if task.dummies.law in {"fixed", "fractional"} and task.composition.dummy_laws:
        wanted.append(("One more dummy from each user", lambda: _with_a_dummy_more(task), n))
    found = []
    for name, make, n_users in wanted:
        try:
            found.append(_variant(name, make(), n_users, point.coalition))
        except (AccountingError, TaskError):  # the rules of the task's protocol do not allow it
            continue
    return tuple(found)


def with_noise(task: Task, local_epsilon: float) -> Task:
    """
    Return a task with another local ε, by another protocol where its own has no noise. No claim.

    Raises:
        TaskError: There is no such task.
    """
    spec = specify(
        task.item_mechanism.name,
        domain_size=task.domain_size,
        buckets=task.item_mechanism.buckets,
        local_epsilon=local_epsilon,
    )
    names = [task.protocol] if task.composition.local_noise != "none" else list(_NOISY)
    for name in names:
        try:
            return dataclasses.replace(
                task,
                protocol=name,
                mechanism=spec,
                local_epsilon=local_epsilon,
                central_epsilon=0.0,
            )
        except TaskError:
            continue
    raise TaskError(f"no known protocol adds local noise to {task.protocol}")


def _with_a_dummy_more(task: Task) -> Task:
    dummies = DummySpec.averaging(task.dummies.expected_per_user + 1)
    return dataclasses.replace(task, dummies=dummies, central_epsilon=0.0)


def _variant(name: str, task: Task, n_users: int, weakest: Coalition) -> Variant:
    promised = guarantees(task, n_users, 0)
    counted = round(n_users * (1 + task.dummies.expected_per_user))
    mixture = mixture_of(task, n_users, counted=counted)
    shares = np.full(task.domain_size, 1 / task.domain_size)
    return Variant(
        name=name,
        weakest_epsilon=best_promises(promised)[weakest].epsilon,
        claimed_epsilon=claimed(promised).epsilon,
        error=math.sqrt(float(mechanism_of(task).variance(shares, mixture).mean())),
    )
