"""A task as the audited one, with keys of its own and few enough users to be played through."""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Final

from common.accounting.claims import claimable_epsilon
from common.accounting.coalitions import Terms, claimed_guarantee
from common.errors import AccountingError, TaskError
from common.task import Task

SENTINELS: Final = 16
"""More than the thirteen from which on an order that was kept shows."""
_MOST_MESSAGES: Final = 8000
"""Sealed reports of one batch: a second of sealing."""
_SIZES: Final = (16, 64, 256, 1024)
"""Numbers of people that are tried, one after the other."""
_FEW_ITEMS: Final = 16
_DELTA: Final = 0.5
"""What a batch of some twenty people keeps of its guarantees is of no interest here; they are only
to be finite, so that it is released."""
_MOST_EPSILON: Final = 100.0


@lru_cache(maxsize=4)
def rehearsed(task_bytes: bytes) -> Task | None:
    """
    Lay a rehearsal of a task out: same protocol, mechanism, laws and suite.

    Items are fewer where the shuffler's or the users' dummies are so many for each item.

    Returns:
        The task, n_min as many as must take part, without keys that anybody holds; None where so
        many reports belong to it that it cannot be played through in seconds.
    """
    task = Task.from_bytes(task_bytes)
    for n_min in _SIZES:
        for smaller in (task, _with_few_items(task)):
            if _messages(smaller, n_min) > _MOST_MESSAGES:
                continue
            try:
                return _finite(smaller, n_min)
            except (TaskError, AccountingError):
                continue
    return None


def published_under(
    task: Task, *, analyzer_key: bytes, shuffler_key: bytes, nonce: bytes
) -> bytes:
    """Give the bytes of a rehearsal under public keys whose private halves the audit holds."""
    keyed = replace(task, analyzer_key=analyzer_key, shuffler_key=shuffler_key, nonce=nonce)
    return keyed.to_bytes()


def people(task: Task) -> int:
    """Give how many people answer: a few more than n_min, so that a few may be dropped."""
    return task.n_min + 6


def _messages(task: Task, n_min: int) -> int:
    users = n_min + 6 + SENTINELS
    return users * task.reports_per_user + task.expected_shuffler_dummies


def _with_few_items(task: Task) -> Task:
    """Leave items off where each has its own dummies; reports name items then."""
    own = task.shuffler.law != "none" or task.dummies.law == "each-item"
    if not own or task.domain_size <= _FEW_ITEMS:
        return task
    dummies = task.dummies
    if dummies.law == "each-item":
        dummies = replace(dummies, trials=_FEW_ITEMS, most=min(dummies.most, _FEW_ITEMS))
    return replace(
        task,
        domain_size=_FEW_ITEMS,
        labels=task.labels[:_FEW_ITEMS],
        mechanism=replace(task.mechanism, buckets=_FEW_ITEMS),
        dummies=dummies,
        central_epsilon=0.0,
    )


def _finite(task: Task, n_min: int) -> Task:
    """
    Let so few users do, and a submission's reports be refused among them.

    Raises:
        TaskError, AccountingError: Nothing finite can be said for them.
    """
    blank = replace(
        task,
        n_min=n_min,
        target_size=n_min + 4 * SENTINELS,
        delta=_DELTA,
        central_epsilon=0.0,
        population="",
        budget_epsilon=_MOST_EPSILON,
        budget_delta=_DELTA,
    )
    claimed = replace(blank, central_epsilon=claimable_epsilon(blank))
    if math.isinf(claimed_guarantee(Terms.of(claimed), n_min, claimed.reports_per_user).epsilon):
        raise AccountingError("nothing finite holds for so few users")
    return claimed
