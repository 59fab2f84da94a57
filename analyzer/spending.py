"""
What the releases to each population cost together, and whether one more fits the budgets.

Every task promised its people a budget for all releases together, so a release must keep the
budget of each earlier one as well as its own. Tasks without a population stand alone; different
populations are disjoint by the operator's word, and do not add up.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from analyzer.store import Store
from common.accounting.coalitions import claimed_release
from common.accounting.composition import composed_epsilon
from common.accounting.release import Release
from common.errors import AccountingError, BudgetError, LedgerError
from common.guarantee import rounded_up
from common.ledger_entry import LedgerEntry
from common.task import Task
from common.task_digest import TaskDigest

_REMEMBERED: Final = 256
"""Composed figures that are kept: each is asked for when a batch comes, opens and is released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spent:
    """One release, past or proposed, with what its task promised."""

    release: Release
    local_epsilon: float
    budget_epsilon: float
    budget_delta: float


class Spending:
    """Composes what the ledger holds with what would be added."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._past: dict[TaskDigest, _Spent] = {}

    async def require(
        self, task: Task, n_users: int, n_refused: int, digest: TaskDigest | None = None
    ) -> None:
        """
        Refuse a release that `compose` would refuse; cheap where no budget can be exceeded.

        Raises:
            BudgetError: As `compose`.
        """
        together = await self._together(task, n_users, n_refused, digest)
        await asyncio.to_thread(_require, together)

    async def compose(
        self, task: Task, n_users: int, n_refused: int, digest: TaskDigest | None = None
    ) -> float:
        """
        Compose a release with all earlier ones to its population.

        Args:
            task: What would be released.
            n_users: Users in its batch.
            n_refused: Reports of it that are not counted, as far as is known.
            digest: The task's own, so that a release which the ledger holds is not counted twice.

        Returns:
            The central ε of all of them together at the task's budget_delta: an upper bound.

        Raises:
            BudgetError: It exceeds the task's budget, or that of a task released before.

        Cost: up to seconds for a population asked often, in a thread; remembered.
        """
        together = await self._together(task, n_users, n_refused, digest)
        await asyncio.to_thread(_require, together)
        return await asyncio.to_thread(_compose, together, task.budget_delta)

    async def share(self, population: str) -> tuple[str, float]:
        """
        Give a population, and which share of its budget is spent.

        It is the largest, over the budgets that the tasks released to it promised, of the composed
        ε at a budget's own δ over that budget.

        Raises:
            LedgerError: A task of the ledger is not there.

        Cost: that of `compose` for each δ, in a thread; remembered.
        """
        together = [await self._spent(entry) for entry in await self._store.releases_to(population)]
        return population, await asyncio.to_thread(_largest_share, together)

    async def _together(
        self, task: Task, n_users: int, n_refused: int, digest: TaskDigest | None
    ) -> list[_Spent]:
        past = await self._store.releases_to(task.population) if task.population else []
        earlier = [await self._spent(entry) for entry in past if entry.task_digest != digest]
        return [*earlier, await asyncio.to_thread(_proposed, task, n_users, n_refused)]

    async def _spent(self, entry: LedgerEntry) -> _Spent:
        found = self._past.get(entry.task_digest)
        if found is None:
            task = await self._task(entry)
            found = await asyncio.to_thread(_proposed, task, entry.n_users, entry.n_refused)
            self._past[entry.task_digest] = found
        return found

    async def _task(self, entry: LedgerEntry) -> Task:
        signed = await self._store.task(entry.task_digest)
        if signed is None:
            raise LedgerError(f"the task of ledger entry {entry.entry} is not there")
        return Task.from_bytes(signed.task_bytes)


def _proposed(task: Task, n_users: int, n_refused: int) -> _Spent:
    return _Spent(
        release=claimed_release(task, n_users, n_refused),
        local_epsilon=task.local_epsilon,
        budget_epsilon=task.budget_epsilon,
        budget_delta=task.budget_delta,
    )


def _require(together: Sequence[_Spent]) -> None:
    """Compare all releases together with the budget that each of their tasks promised."""
    for budget_epsilon, budget_delta in sorted(
        {(spent.budget_epsilon, spent.budget_delta) for spent in together}
    ):
        if _local(together) <= budget_epsilon:
            continue
        composed = _compose(together, budget_delta)
        if composed > budget_epsilon:
            raise BudgetError(
                f"with this one, {len(together)} released to its population would cost a central "
                f"epsilon of {rounded_up(composed)} at delta {rounded_up(budget_delta)}; "
                f"the budget is {budget_epsilon!r}"
            )


def _largest_share(together: Sequence[_Spent]) -> float:
    """Compare all releases together with each budget; 0 if there are none."""
    largest = 0.0
    # From the smallest on: what is local over a larger one is often less than was found.
    for budget_epsilon, budget_delta in sorted(
        {(spent.budget_epsilon, spent.budget_delta) for spent in together}
    ):
        if _local(together) / budget_epsilon > largest:
            largest = max(largest, _compose(together, budget_delta) / budget_epsilon)
    return largest


def _compose(together: Sequence[_Spent], delta: float) -> float:
    releases = tuple(spent.release for spent in together)
    return min(_local(together), _composed(releases, delta))


def _local(together: Sequence[_Spent]) -> float:
    """Give what all cost even if nobody else is honest: they can cost no more than that."""
    return math.fsum(spent.local_epsilon for spent in together)


@lru_cache(maxsize=_REMEMBERED)
def _composed(releases: tuple[Release, ...], delta: float) -> float:
    try:
        return composed_epsilon(releases, delta)
    except AccountingError:
        # Nothing is certified at so small a δ; what is local holds all the same.
        return math.inf
