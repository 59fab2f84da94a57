"""Tasks: from an operator's draft to a signed, published task."""

import asyncio
import dataclasses
import math
from datetime import UTC, datetime

import numpy as np

from analyzer.budgets import Spending
from analyzer.keys import AnalyzerKeys
from analyzer.metrics import ReleaseMetrics
from analyzer.storage.store import Store
from analyzer.storage.task_table import TaskLine
from analyzer.task_builder import local_claim, specification
from common.accounting.claims import claimable_epsilon
from common.accounting.epsilon_search import MOST_EPSILON
from common.crypto.hpke import HpkePublicKey, KeyId, key_id
from common.crypto.signing import SignedTask
from common.errors import TaskError, UnknownTaskError
from common.protocols import protocol_named
from common.runtime.clock import Clock
from common.task.composition import check_domain_size
from common.task.draft import TaskDraft
from common.task.dummy_spec import DummySpec
from common.task.task import NONCE_BYTES, Task
from common.task.text import normalised
from common.task_digest import TaskDigest


class Registry:
    """Publishes tasks and gives them out."""

    def __init__(
        self,
        *,
        store: Store,
        spending: Spending,
        keys: AnalyzerKeys,
        clock: Clock,
        rng: np.random.Generator,
        metrics: ReleaseMetrics,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._spending = spending
        self._keys = keys
        self._clock = clock
        self._rng = rng

    async def publish(self, draft: TaskDraft) -> SignedTask:
        """
        Make a task of a draft, sign and keep it. For operators.

        Raises:
            TaskError: The draft breaks a rule.
            WireError: It names a suite that there is not.
            BudgetError: Its population has not enough left for its smallest batch: it could never
                be released.
        """
        check_deadline(draft, self._clock.now())
        nonce = self._rng.bytes(NONCE_BYTES)
        public_key = self._keys.reports.public_key(draft.suite).raw
        task = await asyncio.to_thread(complete, draft, analyzer_key=public_key, nonce=nonce)
        await self._spending.require(task, task.n_min, 0)
        signed = self._keys.identity.sign(task.to_bytes())
        await self._store.add_task(signed, TaskLine.of(task))
        self._metrics.published(signed.digest(), task.deadline)
        return signed

    async def get(self, digest: TaskDigest) -> SignedTask:
        """
        Give a published task.

        Raises:
            UnknownTaskError: There is none with this digest.
        """
        signed = await self._store.task(digest)
        if signed is None:
            raise UnknownTaskError("there is no task with this digest")
        return signed

    async def needed_keys(self, keep: float) -> set[KeyId] | None:
        """
        List the keys that a batch may still need: staged ones, and those yet to be delivered.

        Args:
            keep: How many seconds after a task's deadline its batch may still come.

        Returns:
            Their ids; None where this version cannot read one of their tasks: its key may be any,
            and a later version may yet open its batch.

        Cost: reads each of their tasks.
        """
        needed = set()
        for task_bytes in await self._store.awaited_tasks(self._clock.now() - keep):
            try:
                task = Task.from_bytes(task_bytes)
            except TaskError:
                return None
            needed.add(key_id(task.suite, task.analyzer_key))
        return needed


def check_deadline(draft: TaskDraft, now: float) -> None:
    """
    Check that users have time to take part.

    Args:
        draft: Of a task.
        now: Seconds since 1970 UTC.

    Raises:
        TaskError: The deadline is not in the future.
    """
    if draft.deadline <= now:
        date = f"{datetime.fromtimestamp(max(0, draft.deadline), UTC):%Y-%m-%d %H:%M} UTC"
        raise TaskError(f"the deadline, {date}, is not in the future")


def complete(draft: TaskDraft, *, analyzer_key: bytes, nonce: bytes) -> Task:
    """
    Add to a draft what follows from it: the mechanism's integers and the claims. Pure.

    Raises:
        TaskError: The draft breaks a rule, or nothing finite can be claimed for n_min users.
        WireError: Its shuffler_key is no key of its suite.

    Cost: one search for ε, tenths of a second.
    """
    protocol = protocol_named(draft.protocol)
    if protocol.kind == "string" and draft.labels:
        draft = _of_labels(draft)
    check_domain_size(draft.domain_size, protocol.kind)
    spec = specification(draft)
    local_epsilon = local_claim(draft, spec)
    task = Task(
        protocol=draft.protocol,
        domain_size=draft.domain_size,
        labels=draft.labels,
        mechanism=spec,
        dummies=_dummies(draft),
        shuffler=draft.shuffler,
        delta=draft.delta,
        n_min=draft.n_min,
        target_size=draft.target_size,
        deadline=draft.deadline,
        assumed_honest_fraction=draft.assumed_honest_fraction,
        local_epsilon=local_epsilon,
        central_epsilon=0.0,  # until it is known, below: it follows from everything else
        suite=draft.suite,
        analyzer_key=analyzer_key,
        shuffler_key=draft.shuffler_key,
        nonce=nonce,
        population=draft.population,
        budget_epsilon=_budget_epsilon(draft, local_epsilon),
        budget_delta=draft.delta if draft.budget_delta is None else draft.budget_delta,
    )
    HpkePublicKey(task.suite, task.shuffler_key)  # no device could seal to what is no key
    return dataclasses.replace(task, central_epsilon=claimable_epsilon(task))


def _of_labels(draft: TaskDraft) -> TaskDraft:
    """Write labels that are texts as devices write texts; an item each, where nothing is said."""
    size = len(draft.labels) if draft.domain_size == 1 else draft.domain_size
    labels = tuple(normalised(label) for label in draft.labels)
    return dataclasses.replace(draft, domain_size=size, labels=labels)


def _dummies(draft: TaskDraft) -> DummySpec:
    if draft.dummies is None:
        return DummySpec.averaging(draft.dummies_per_user)
    if draft.dummies_per_user:
        raise TaskError(
            f"dummies_per_user is {draft.dummies_per_user}; with a law in dummies it must be 0"
        )
    return draft.dummies


def _budget_epsilon(draft: TaskDraft, local_epsilon: float) -> float:
    """
    Give the budget of a draft: the stated one, or the local ε, which a task alone never exceeds.

    Without local noise a task that stands alone gets the largest ε that the accountant certifies;
    what several of them may cost together is not for this program to guess.
    """
    if draft.budget_epsilon is not None:
        return draft.budget_epsilon
    if not math.isinf(local_epsilon):
        return local_epsilon
    if draft.population:
        raise TaskError("a population asked without local noise needs a budget_epsilon")
    return MOST_EPSILON
