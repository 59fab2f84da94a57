"""A task as the audited one, with keys of its own and few enough users to be played through."""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Final

from common.accounting.guarantees import Terms, claimable_epsilon, claimed_guarantee
from common.errors import AccountingError, TaskError
from common.task.dummy_spec import DummySpec
from common.task.task import Task

SENTINELS: Final = 16
"""More than the thirteen from which on an order that was kept shows."""
_SIZES: Final = (16, 64, 256)
"""Numbers of people that are tried, one after the other."""
_MOST_MESSAGES: Final = 2500
"""Sealed reports of one batch: half a second of sealing and opening."""
_MOST_SEEDS: Final = 10_000
"""Of a hash family; with many, refining takes longer than everything else."""
_FEW_ITEMS: Final = 8
_FEW_SEEDS: Final = 300
_FEW_DUMMIES: Final = 8
_DELTA: Final = 0.5
"""What a batch of some twenty people keeps of its guarantees is of no interest here; they are only
to be finite, so that it is released."""
_MOST_EPSILON: Final = 100.0


@lru_cache(maxsize=4)
def rehearsed(task_bytes: bytes) -> Task | None:
    """
    Lay a rehearsal of a task out: same protocol, mechanism, weights, laws and suite.

    Where it could not be played through in seconds it has fewer items and buckets, and at last
    fewer dummies: what is tried out is who notices what, which no number of them changes.

    Returns:
        The task, n_min as many as must take part, without keys that anybody holds; None where
        nothing finite can be claimed for a few hundred people.
    """
    task = Task.from_bytes(task_bytes)
    for shrink in (_as_it_is, _with_few_items, _with_few_dummies):
        for n_min in _SIZES:
            try:
                smaller = shrink(task)
                if _is_small(smaller, n_min):
                    return _finite(smaller, n_min)
            except (TaskError, AccountingError):  # nothing finite, or no task of its protocol
                continue
    return None


def published_under(task: Task, *, analyzer_key: bytes, shuffler_key: bytes, nonce: bytes) -> bytes:
    """Give the bytes of a rehearsal under public keys whose private halves the audit holds."""
    keyed = replace(task, analyzer_key=analyzer_key, shuffler_key=shuffler_key, nonce=nonce)
    return keyed.to_bytes()


def people(task: Task) -> int:
    """Give how many people answer: a few more than n_min, so that a few may be dropped."""
    return task.n_min + 6


def _is_small(task: Task, n_min: int) -> bool:
    spec, users = task.mechanism, n_min + 6 + SENTINELS
    if spec.name == "local-hashing" and spec.buckets**spec.digits > _MOST_SEEDS:
        return False
    messages = users * task.reports_per_user + task.expected_shuffler_dummies
    return messages <= _MOST_MESSAGES


def _as_it_is(task: Task) -> Task:
    return task


def _with_few_items(task: Task) -> Task:
    """Leave items off, and hash them to few buckets."""
    spec, dummies = task.mechanism, task.dummies
    if spec.name == "local-hashing":
        buckets, digits = min(spec.buckets, 7), 2  # both prime
        while buckets**digits < _FEW_SEEDS:
            digits += 1
        items, spec = 4 * _FEW_ITEMS, replace(spec, buckets=buckets, digits=digits)
    elif spec.name == "grr":
        items, spec = _FEW_ITEMS, replace(spec, buckets=_FEW_ITEMS)
    else:
        return task
    if task.domain_size <= items:
        return task
    if dummies.law == "each-item":
        dummies = replace(dummies, trials=items, most=min(dummies.most, items))
    return replace(
        task,
        domain_size=items,
        labels=task.labels[:items],
        mechanism=spec,
        dummies=dummies,
    )


def _with_few_dummies(task: Task) -> Task:
    """Let users, and the shuffler, add fewer; of fewer items."""
    task = _with_few_items(task)
    dummies, shuffler = task.dummies, task.shuffler
    if dummies.uniform and dummies.maximum > _FEW_DUMMIES:
        dummies = DummySpec(law="fixed", per_user=_FEW_DUMMIES)
    if shuffler.law == "binomial":
        few = min(shuffler.trials, 4 * _FEW_DUMMIES)
        shuffler = replace(shuffler, trials=few, most=few)
    elif shuffler.law == "geometric":
        peak = min(shuffler.peak, _FEW_DUMMIES)
        shuffler = replace(shuffler, peak=peak, most=min(shuffler.most, 3 * _FEW_DUMMIES))
    return replace(task, dummies=dummies, shuffler=shuffler)


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
