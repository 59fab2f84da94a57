"""
Compose the cost of all releases to a population, and check it against all their budgets.

Every task promises its users a budget for all releases to their population together, so a release
must respect the budget of each earlier task as well as its own. A task without a population is
composed with no other; different populations are assumed disjoint and are not composed. Answers to
a lasting question cost at most ε∞ together if texts stay the same, as its tasks assume.
"""

import asyncio
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

from shuffledp.analyzer.storage import ledger, task_table
from shuffledp.analyzer.storage.store import Store
from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.guarantees import charged_release
from shuffledp.common.accounting.releases import (
    PermanentRelease,
    Release,
    lasting_basis,
    lasting_epsilon,
)
from shuffledp.common.errors import AccountingError, BudgetError, LedgerError
from shuffledp.common.messages.guarantee import NONE_WAIVED, Waived, rounded_up, sum_upper
from shuffledp.common.messages.ledger_entry import LedgerEntry
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest

_MAX_CACHED: Final = 256
"""Number of cached compositions. A batch needs each on arrival and again on release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedRelease:
    """A past or proposed release, with the budget that its task promised."""

    release: Release
    local_epsilon: float
    budget_epsilon: float
    budget_delta: float

    @classmethod
    def of(cls, task: Task, n_users: int, n_refused: int, waived: Waived = NONE_WAIVED) -> Self:
        """Return the release of a batch of `n_users`, with `n_refused` reports not counted."""
        return cls(
            release=charged_release(task, n_users, n_refused, waived),
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
        """The spent share of the budget; 1 if all is spent, above 1 if it is exceeded."""
        return self.spent_epsilon / self.epsilon


class ReleaseBudgets:
    """Checks a proposed release against the budgets of all releases so far and its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._past: dict[TaskDigest, BudgetedRelease] = {}

    async def check(self, task: Task, n_users: int, digest: TaskDigest | None = None) -> None:
        """
        Refuse a batch that `compose` would refuse even if every report is counted.

        Raises:
            BudgetError: The release would exceed a budget, as in `compose`.
            AccountingError: No guarantee exists for `n_users` users of this task.
            LedgerError: A task of the ledger is missing.
            TaskError: A task of the ledger cannot be read.

        Cost: that of `compose`; little if the sum of all local ε is within every budget.
        """
        await self._checked(task, digest, n_users, 0, NONE_WAIVED)

    async def compose(
        self,
        task: Task,
        n_users: int,
        n_refused: int,
        digest: TaskDigest,
        waived: Waived = NONE_WAIVED,
    ) -> float:
        """
        Compose a release with all earlier ones to its population, and check every budget.

        `n_refused` reports of its batch were not counted. By its `digest`, the task's own ledger
        entry is not counted twice.

        Returns:
            Upper bound on the central ε of all these releases at the task's budget_delta.

        Raises:
            BudgetError: The composed cost exceeds the budget of this task or of an earlier one.
            AccountingError, LedgerError, TaskError: As in `check`.

        Cost: up to seconds for a population with many releases, in a thread; cached.
        """
        releases = await self._checked(task, digest, n_users, n_refused, waived)
        return await asyncio.to_thread(_compose, releases, task.budget_delta)

    async def share(self, population: str) -> tuple[str, float]:
        """
        Return the population, and the largest share spent of any budget promised to it.

        Raises AccountingError, LedgerError and TaskError as `check` does. Cost: that of `compose`
        for each δ, in a thread; cached.
        """
        entries = await self._store.run(ledger.entries_of, population)
        releases = [await self._released(entry) for entry in entries]
        budgets = await asyncio.to_thread(population_budgets, releases)
        return population, max((budget.share for budget in budgets), default=0.0)

    async def _checked(
        self, task: Task, digest: TaskDigest | None, *batch: *tuple[int, int, Waived]
    ) -> list[BudgetedRelease]:
        """Check all other releases to a task's population with the proposed one; return them."""
        entries = []
        if task.population:
            entries = await self._store.run(ledger.entries_of, task.population)
        earlier = [await self._released(entry) for entry in entries if entry.task_digest != digest]
        releases = [*earlier, await asyncio.to_thread(BudgetedRelease.of, task, *batch)]
        await asyncio.to_thread(_check, releases)
        return releases

    async def _released(self, entry: LedgerEntry) -> BudgetedRelease:
        release = self._past.get(entry.task_digest)
        if release is None:
            signed = await self._store.run(task_table.find, entry.task_digest)
            if signed is None:
                raise LedgerError(f"the task of ledger entry {entry.entry} is missing")
            task = Task.from_bytes(signed.task_bytes)
            batch = (entry.n_users, entry.n_refused, Waived.parse(entry.waived))
            release = await asyncio.to_thread(BudgetedRelease.of, task, *batch)
            self._past[entry.task_digest] = release
        return release


def population_budgets(
    releases: Sequence[BudgetedRelease], promised: Collection[tuple[float, float]] = ()
) -> tuple[PopulationBudget, ...]:
    """
    Compare all releases to a population with each of their budgets. Also run by operators.

    `promised` are budgets, as ε and δ, in addition to those of the releases' own tasks. Returns
    each budget once, by decreasing share spent. Cost: up to seconds for each δ; cached.
    """
    budgets = [
        PopulationBudget(
            epsilon=epsilon,
            delta=delta,
            spent_epsilon=_compose(releases, delta) if releases else 0.0,
        )
        for epsilon, delta in sorted(_promised(releases).union(promised))
    ]
    return tuple(sorted(budgets, key=lambda budget: budget.share, reverse=True))


def basis_of(releases: Sequence[BudgetedRelease]) -> str:
    """Explain what lasting questions among the releases count; empty if there are none."""
    return lasting_basis(each.release for each in releases)


def _promised(releases: Sequence[BudgetedRelease]) -> set[tuple[float, float]]:
    return {(release.budget_epsilon, release.budget_delta) for release in releases}


def _check(releases: Sequence[BudgetedRelease]) -> None:
    """Check all releases together against each of their tasks' budgets."""
    for budget_epsilon, budget_delta in sorted(_promised(releases)):
        if _local(releases) <= budget_epsilon:
            continue
        composed = _compose(releases, budget_delta)
        if composed > budget_epsilon:
            basis = basis_of(releases).removesuffix(".")
            raise BudgetError(
                f"{len(releases)} releases to its population, this one included, would cost a "
                f"central epsilon of {rounded_up(composed)} at delta {rounded_up(budget_delta)}; "
                f"the budget is {budget_epsilon!r}{basis and f'. {basis}'}"
            )


def _compose(releases: Sequence[BudgetedRelease], delta: float) -> float:
    central = _central(tuple(budgeted.release for budgeted in releases), delta)
    return min(_local(releases), central)


def _local(releases: Sequence[BudgetedRelease]) -> float:
    """Return the sum of local ε, or ε∞, an upper bound whatever the other parties do."""
    others = [each for each in releases if not isinstance(each.release, PermanentRelease)]
    lasting = lasting_epsilon(each.release for each in releases)
    return sum_upper([lasting, *(each.local_epsilon for each in others)])


@lru_cache(maxsize=_MAX_CACHED)
def _central(releases: tuple[Release, ...], delta: float) -> float:
    try:
        return composed_epsilon(releases, delta)
    except AccountingError:
        # No central ε is certified at so small a δ; the local one still holds.
        return math.inf
