"""
What the releases to each population cost together, and whether one more fits the budgets.

Every task promised its people a budget for all releases together, so a release must keep the
budget of each earlier one as well as its own. Tasks without a population stand alone; different
populations are disjoint by the operator's word, and do not add up.
"""

import asyncio
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

from analyzer.storage.store import Store
from common.accounting.composition import composed_epsilon
from common.accounting.guarantees import claimed_release
from common.accounting.releases import Release
from common.errors import AccountingError, BudgetError, LedgerError
from common.messages.guarantee import rounded_up, sum_upper
from common.messages.ledger_entry import LedgerEntry
from common.task.task import Task
from common.task_digest import TaskDigest

_REMEMBERED: Final = 256
"""Composed figures that are kept: each is asked for when a batch comes, opens and is released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentBudget:
    """One release, past or proposed, with what its task promised."""

    release: Release
    local_epsilon: float
    budget_epsilon: float
    budget_delta: float

    @classmethod
    def by(cls, task: Task, n_users: int, n_refused: int) -> Self:
        """Give what a release of so many users costs, so many of its reports not counted."""
        return cls(
            release=claimed_release(task, n_users, n_refused),
            local_epsilon=task.local_epsilon,
            budget_epsilon=task.budget_epsilon,
            budget_delta=task.budget_delta,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationBudget:
    """A promise of some task's: what all releases to its population may cost, and what they did."""

    epsilon: float
    delta: float
    spent_epsilon: float
    """An upper bound, at `delta`; may be infinite."""

    @property
    def left_epsilon(self) -> float:
        """What later releases may add, 0 or more."""
        return max(0.0, self.epsilon - self.spent_epsilon)

    @property
    def share(self) -> float:
        """How much of it is spent; 1 is all."""
        return self.spent_epsilon / self.epsilon


class ReleaseBudgets:
    """Composes what the ledger holds with what would be added."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._past: dict[TaskDigest, SpentBudget] = {}

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

        It is the largest share of the budgets that the tasks released to it promised.

        Raises:
            LedgerError: A task of the ledger is not there.

        Cost: that of `compose` for each δ, in a thread; remembered.
        """
        together = [await self._spent(entry) for entry in await self._store.releases_to(population)]
        kept = await asyncio.to_thread(budgets, together)
        return population, max((budget.share for budget in kept), default=0.0)

    async def _together(
        self, task: Task, n_users: int, n_refused: int, digest: TaskDigest | None
    ) -> list[SpentBudget]:
        past = await self._store.releases_to(task.population) if task.population else []
        earlier = [await self._spent(entry) for entry in past if entry.task_digest != digest]
        return [*earlier, await asyncio.to_thread(SpentBudget.by, task, n_users, n_refused)]

    async def _spent(self, entry: LedgerEntry) -> SpentBudget:
        found = self._past.get(entry.task_digest)
        if found is None:
            task = await self._task(entry)
            found = await asyncio.to_thread(SpentBudget.by, task, entry.n_users, entry.n_refused)
            self._past[entry.task_digest] = found
        return found

    async def _task(self, entry: LedgerEntry) -> Task:
        signed = await self._store.task(entry.task_digest)
        if signed is None:
            raise LedgerError(f"the task of ledger entry {entry.entry} is not there")
        return Task.from_bytes(signed.task_bytes)


def budgets(
    together: Sequence[SpentBudget], promised: Collection[tuple[float, float]] = ()
) -> tuple[PopulationBudget, ...]:
    """
    Compare all releases to a population with each budget that binds them. Also by an operator.

    Args:
        together: The releases.
        promised: Budgets, as ε and δ, that hold besides those of the releases' own tasks.

    Returns:
        Each budget once, the one of which the largest share is spent first.

    Cost: up to seconds for each δ; remembered.
    """
    of_releases = {(spent.budget_epsilon, spent.budget_delta) for spent in together}
    found = [
        PopulationBudget(
            epsilon=epsilon,
            delta=delta,
            spent_epsilon=_compose(together, delta) if together else 0.0,
        )
        for epsilon, delta in sorted(of_releases | set(promised))
    ]
    return tuple(sorted(found, key=lambda budget: budget.share, reverse=True))


def _require(together: Sequence[SpentBudget]) -> None:
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


def _compose(together: Sequence[SpentBudget], delta: float) -> float:
    releases = tuple(spent.release for spent in together)
    return min(_local(together), _composed(releases, delta))


def _local(together: Sequence[SpentBudget]) -> float:
    """Give what all cost even if nobody else is honest: they can cost no more than that."""
    return sum_upper(spent.local_epsilon for spent in together)


@lru_cache(maxsize=_REMEMBERED)
def _composed(releases: tuple[Release, ...], delta: float) -> float:
    try:
        return composed_epsilon(releases, delta)
    except AccountingError:
        # Nothing is certified at so small a δ; what is local holds all the same.
        return math.inf
