"""Tasks that no service publishes, and reduced drafts of an audited task."""

import dataclasses
import math
from functools import lru_cache
from typing import Any, Final

from analyzer.task_builder import complete
from common.accounting.guarantees import PrivacyParameters, claimed_guarantee
from common.crypto.hpke import HpkePrivateKey
from common.errors import ShuffleDpError
from common.task.draft import TaskDraft
from common.task.dummy_spec import DummySpec
from common.task.task import NONCE_BYTES, Task

FAR_FUTURE: Final = 4_000_000_000
_UNUSED_KEY: Final = bytes(31) + b"\x09"
"""A public key whose private key is thrown away."""
_SAMPLE_USERS: Final = 100_000
_SAMPLE_DELTA: Final = 1e-6
_DELTA: Final = 0.5
"""A batch of a few dozen users keeps no useful guarantee; it only needs a finite one."""
_MAX_EPSILON: Final = 100.0
_MAX_SEEDS: Final = 10_000
"""Refining takes minutes for a hash family with more seeds."""
_FEW_ITEMS: Final = 32
_FEW_BUCKETS: Final = 7
_FEW_DUMMIES: Final = 8


def sample_task(**fields: Any) -> Task:  # noqa: ANN401  # of a draft
    """
    Make a task of a draft's fields; items are named unless `labels` names them.

    Raises:
        TaskError: They break a rule.
    """
    size = fields["domain_size"]
    plain: dict[str, Any] = {
        "labels": tuple(f"item {item}" for item in range(size)),
        "delta": _SAMPLE_DELTA,
        "n_min": _SAMPLE_USERS,
        "target_size": _SAMPLE_USERS,
        "deadline": FAR_FUTURE,
    }
    draft = TaskDraft(shuffler_key=_UNUSED_KEY, **plain | fields)
    return complete(draft, analyzer_key=_UNUSED_KEY, nonce=bytes(range(NONCE_BYTES)))


@lru_cache(maxsize=8)
def reduced_draft(
    task_bytes: bytes, *, most_reports: int, n_users: tuple[int, ...]
) -> TaskDraft | None:
    """
    Reduce a task on items to one that a few users complete in seconds, or None if none is finite.

    Protocol, noise and distributions of dummies stay; items, buckets and at last dummies are cut
    where the batch would have more than `most_reports`. Which party notices which attack depends on
    none of them. `n_users` are values of n_min to try, in order.

    Cost: a search for ε for each draft that is tried, tenths of a second.
    """
    task = Task.from_bytes(task_bytes)
    key = HpkePrivateKey.generate(task.suite).public_key().raw
    whole = _draft_of(task, key)
    fewer = _with_fewer_items(whole)
    for wanted in (whole, fewer, _with_fewer_dummies(fewer)):
        for n_min in n_users:
            tried = dataclasses.replace(wanted, n_min=n_min, target_size=100 * n_min)
            try:
                small = complete(tried, analyzer_key=key, nonce=bytes(NONCE_BYTES))
            except ShuffleDpError:  # nothing finite can be claimed
                continue
            guarantee = claimed_guarantee(
                PrivacyParameters.of(small), n_min, small.reports_per_user
            )
            if _fits(small, most_reports) and math.isfinite(guarantee.epsilon):
                return tried
    return None


def _draft_of(task: Task, key: bytes) -> TaskDraft:
    return TaskDraft(
        protocol=task.protocol,
        domain_size=task.domain_size,
        labels=task.labels,
        buckets=task.item_mechanism.buckets if task.composition.hashes else 0,
        local_epsilon=task.local_epsilon,
        delta=_DELTA,
        dummies=task.dummies,
        shuffler=task.shuffler,
        assumed_honest_fraction=task.assumed_honest_fraction,
        n_min=task.n_min,
        target_size=task.target_size,
        deadline=FAR_FUTURE,
        shuffler_key=key,
        budget_epsilon=_MAX_EPSILON,
        budget_delta=_DELTA,
        suite=task.suite,
    )


def _fits(task: Task, most_reports: int) -> bool:
    spec = task.mechanism
    if spec.name == "local-hashing" and spec.buckets**spec.digits > _MAX_SEEDS:
        return False
    return task.n_min * task.reports_per_user + task.expected_shuffler_dummies <= most_reports


def _with_fewer_items(wanted: TaskDraft) -> TaskDraft:
    size = min(wanted.domain_size, _FEW_ITEMS)
    dummies = wanted.dummies
    if dummies is not None and not dummies.uniform:
        dummies = dataclasses.replace(dummies, trials=size, most=min(dummies.most, size))
    return dataclasses.replace(
        wanted,
        domain_size=size,
        labels=wanted.labels[:size],
        buckets=min(wanted.buckets, _FEW_BUCKETS),
        dummies=dummies,
    )


def _with_fewer_dummies(wanted: TaskDraft) -> TaskDraft:
    dummies, shuffler = wanted.dummies, wanted.shuffler
    if dummies is not None and dummies.uniform and dummies.maximum > _FEW_DUMMIES:
        dummies = DummySpec(law="fixed", per_user=_FEW_DUMMIES)
    if shuffler.law == "binomial":
        few = min(shuffler.trials, 4 * _FEW_DUMMIES)
        shuffler = dataclasses.replace(shuffler, trials=few, most=few)
    elif shuffler.law == "geometric":
        peak = min(shuffler.peak, _FEW_DUMMIES)
        most = min(shuffler.most, 3 * _FEW_DUMMIES)
        shuffler = dataclasses.replace(shuffler, peak=peak, most=most)
    return dataclasses.replace(wanted, dummies=dummies, shuffler=shuffler)
