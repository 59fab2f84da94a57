"""
Compose the cost of all releases to a population, and check it against their budgets.

Every task promises its users a budget for all releases to their population together, so a release
must respect the budget of each earlier task as well as its own. A task without a population is
composed with no other; different populations are assumed disjoint and are not composed.
"""

import asyncio
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

from analyzer.storage import ledger
from analyzer.storage.store import Store
from common.accounting.composition import composed_epsilon
from common.accounting.guarantees import claimed_release
from common.accounting.releases import Release
from common.errors import AccountingError, BudgetError, LedgerError
from common.messages.guarantee import rounded_up, sum_upper
from common.messages.ledger_entry import LedgerEntry
from common.task.task import Task
from common.task_digest import TaskDigest

_MAX_CACHED: Final = 256
"""Number of cached compositions: each is needed when a batch arrives, opens and is released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentBudget:
    """One release, past or proposed, with the budget that its task promised."""

    release: Release
    local_epsilon: float
    budget_epsilon: float
    budget_delta: float

    @classmethod
    def by(cls, task: Task, n_users: int, n_refused: int) -> Self:
        """Return the cost of a release of `n_users` users with `n_refused` reports not counted."""
        return cls(
            release=claimed_release(task, n_users, n_refused),
            local_epsilon=task.local_epsilon,
            budget_epsilon=task.budget_epsilon,
            budget_delta=task.budget_delta,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationBudget:
    """A budget for all releases to a population, and how much of it is spent."""

    epsilon: float
    delta: float
    spent_epsilon: float
    """Upper bound at `delta`; may be infinite."""

    @property
    def left_epsilon(self) -> float:
        """The ε left for later releases, at least 0."""
        return max(0.0, self.epsilon - self.spent_epsilon)

    @property
    def share(self) -> float:
        """The share of the budget that is spent; 1 if all of it is."""
        return self.spent_epsilon / self.epsilon


class ReleaseBudgets:
    """Composes the releases in the ledger with a proposed one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._past: dict[TaskDigest, SpentBudget] = {}

    async def require(
        self, task: Task, n_users: int, n_refused: int, digest: TaskDigest | None = None
    ) -> None:
        """
        Refuse a release that `compose` would refuse; cheap if no budget can be exceeded.

        Raises:
            BudgetError: The release would exceed a budget, as in `compose`.
        """
        together = await self._together(task, n_users, n_refused, digest)
        await asyncio.to_thread(_require, together)

    async def compose(
        self, task: Task, n_users: int, n_refused: int, digest: TaskDigest | None = None
    ) -> float:
        """
        Compose a release with all earlier ones to its population.

        Args:
            task: The task of the release.
            n_users: Users in its batch.
            n_refused: Reports of the batch known not to be counted.
            digest: The task's digest, so that its own ledger entry is not counted twice.

        Returns:
            Upper bound on the central ε of all these releases at the task's budget_delta.

        Raises:
            BudgetError: It exceeds the budget of the task or of one released before.

        Cost: up to seconds for a population with many releases, in a thread; cached.
        """
        together = await self._together(task, n_users, n_refused, digest)
        await asyncio.to_thread(_require, together)
        return await asyncio.to_thread(_compose, together, task.budget_delta)

    async def share(self, population: str) -> tuple[str, float]:
        """
        Return the population, and the largest share spent of any budget promised to it.

        Raises:
            LedgerError: A task of the ledger is missing.

        Cost: as `compose` for each δ, in a thread; cached.
        """
        releases = await self._store.run(ledger.entries_of, population)
        together = [await self._spent(entry) for entry in releases]
        kept = await asyncio.to_thread(budgets, together)
        return population, max((budget.share for budget in kept), default=0.0)

    async def _together(
        self, task: Task, n_users: int, n_refused: int, digest: TaskDigest | None
    ) -> list[SpentBudget]:
        past = []
        if task.population:
            past = await self._store.run(ledger.entries_of, task.population)
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
            raise LedgerError(f"the task of ledger entry {entry.entry} is missing")
        return Task.from_bytes(signed.task_bytes)


def budgets(
    together: Sequence[SpentBudget], promised: Collection[tuple[float, float]] = ()
) -> tuple[PopulationBudget, ...]:
    """
    Compare all releases to a population with each of their budgets. Also run by operators.

    Args:
        together: The releases.
        promised: Budgets, as ε and δ, in addition to those of the releases' own tasks.

    Returns:
        Each budget once, by decreasing share spent.

    Cost: up to seconds for each δ; cached.
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
    """Check all releases together against each of their tasks' budgets."""
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
    """Return the sum of local ε, an upper bound whatever the other parties do."""
    return sum_upper(spent.local_epsilon for spent in together)


@lru_cache(maxsize=_MAX_CACHED)
def _composed(releases: tuple[Release, ...], delta: float) -> float:
    try:
        return composed_epsilon(releases, delta)
    except AccountingError:
        # No central ε is certified at so small a δ; the local one still holds.
        return math.inf
