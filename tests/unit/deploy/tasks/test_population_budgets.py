"""Budgets of populations, from the ledger."""

import dataclasses
import json
import math
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import LedgerError, PeerRefusalError, TaskError
from shuffledp.common.messages.batch import TaskSummary
from shuffledp.common.messages.ledger_entry import ChainHead, LedgerEntry, verify
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.tasks.population_budgets import (
    as_json,
    budgets_by_population,
    budgets_of_task,
    show,
)
from shuffledp.deploy.terminal.json_output import dumps
from tests.support.analyzer_core import AnalyzerCore
from tests.support.ledger_entries import population_budgets, releases
from tests.support.printing import printed
from tests.support.scrapes import series_of

_USERS = 50


@dataclasses.dataclass(frozen=True, slots=True)
class _Operator:
    """Reads an analyzer's tasks and ledger, or another ledger, without one unreadable task."""

    _core: AnalyzerCore
    _entries: list[LedgerEntry] | None = None
    _unreadable: TaskDigest | None = None

    async def describe(self, digest: TaskDigest) -> tuple[SignedTask, TaskSummary]:
        if digest == self._unreadable:
            raise PeerRefusalError(TaskError.status, "the analyzer cannot read its task 5b1f")
        return await self._core.registry.get(digest), None  # type: ignore[return-value]  # not read

    async def ledger(self) -> tuple[list[LedgerEntry], ChainHead]:
        if self._entries is not None:
            return self._entries, ChainHead(entry=1, entry_hash=bytes(32))
        entries = releases(await self._core.store.ledger(0))
        return entries, verify(entries)


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[AnalyzerCore]:
    """A started analyzer."""
    started = AnalyzerCore(tmp_path)
    await started.start()
    yield started
    await started.stop()


async def _publish(core: AnalyzerCore, **changes: Any) -> Task:
    fields = {"n_min": _USERS, "target_size": _USERS, "population": "staff", "budget_epsilon": 2.0}
    await core.publish(**fields | changes)
    return core.task


async def _released(core: AnalyzerCore, **changes: Any) -> Task:
    task = await _publish(core, **changes)
    await core.release(_USERS, core.signed)
    return task


async def _ledger(core: AnalyzerCore) -> list[LedgerEntry]:
    return releases(await core.store.ledger(0))


async def test_the_population_with_the_largest_spent_share_comes_first(core: AnalyzerCore) -> None:
    """Spending equals the analyzer's and its metric's; tasks without a population have no row."""
    await _released(core, population="guests", budget_epsilon=20.0)
    await _released(core)
    await _released(core, budget_epsilon=3.0, budget_delta=1e-4)
    alone = await _released(core, population="")
    entries = await _ledger(core)
    staff, guests = await budgets_by_population(entries, _Operator(core))

    assert ("staff", 2, 2) == (staff.population, staff.releases, len(staff.budgets))
    assert ("guests", 1, 1) == (guests.population, guests.releases, len(guests.budgets))
    assert await budgets_of_task(alone, _Operator(core)) is None
    assert entries[0].composed_epsilon == guests.budgets[0].spent_epsilon
    assert (20.0, 1e-6) == (guests.budgets[0].epsilon, guests.budgets[0].delta)
    await core.releases.measure_budgets()
    measured = series_of(core.process_metrics.metrics)["shuffledp_budget_spent_ratio", ()]
    assert measured == staff.budgets[0].share > guests.budgets[0].share


async def test_a_task_without_releases_has_its_whole_budget(core: AnalyzerCore) -> None:
    """The budgets of earlier tasks also apply to it."""
    task = await _publish(core)
    alone = await budgets_of_task(task, _Operator(core))
    await _released(core, budget_epsilon=1.5)
    later = await budgets_of_task(task, _Operator(core))
    assert alone is not None
    assert later is not None

    assert (0, [(2.0, 0.0, 2.0)]) == (
        alone.releases,
        [(one.epsilon, one.spent_epsilon, one.left_epsilon) for one in alone.budgets],
    )
    assert [1.5, 2.0] == [budget.epsilon for budget in later.budgets]
    assert 1 == len({budget.spent_epsilon for budget in later.budgets})


@pytest.mark.parametrize("said", ["", "elsewhere"])
async def test_a_ledger_entry_of_another_population_is_refused(
    core: AnalyzerCore, said: str
) -> None:
    """The printed spending would be too low."""
    task = await _released(core)
    [entry] = await _ledger(core)
    altered = [dataclasses.replace(entry, population=said)]
    operator = _Operator(core, altered)

    for asked in (budgets_by_population(altered, operator), budgets_of_task(task, operator)):
        with pytest.raises(LedgerError, match=r"^entry 1 of the ledger names another population"):
            await asked


async def test_spending_is_unknown_if_a_task_cannot_be_read(core: AnalyzerCore) -> None:
    """The row has the reason, and comes before the others."""
    await _released(core, population="guests")
    staff = await _released(core)
    operator = _Operator(core, _unreadable=core.signed.digest())
    populations = await budgets_by_population(await _ledger(core), operator)
    alone = await budgets_of_task(staff, operator)

    assert [("staff", 0, 1), ("guests", 1, 1)] == [
        (one.population, len(one.budgets), one.releases) for one in populations
    ]
    assert populations[0] == alone
    assert "cannot read its task" in populations[0].unknown
    assert "cannot read" in printed(partial(show, populations))


@pytest.mark.parametrize(
    ("spent", "shown"),
    [
        (0.700_01, ("0.7001", "0.4999", "0.5834")),
        (1.3, ("1.3", "0", "1.084")),
        (math.inf, ("inf", "0", "inf")),
    ],
)
def test_spending_is_rounded_up_and_the_rest_down(spent: float, shown: tuple[str, ...]) -> None:
    """An exhausted budget has 0 left, never less."""
    text = printed(partial(show, [population_budgets("\x1b[staff]", spent=spent)]))
    [row] = [line for line in text.splitlines() if "staff" in line]
    cells = [cell.strip() for cell in row.strip("│").split("│")]

    assert ["\\x1b[staff]", "2", "1.2", "1e-05", *shown] == cells
    [written] = json.loads(dumps(as_json(population_budgets(spent=spent))))["budgets"]
    assert (1.2, 1e-5) == (written["budget_epsilon"], written["budget_delta"])
    assert (max(0.0, 1.2 - spent), "inf" if spent == math.inf else spent) == (
        written["left_epsilon"],
        written["spent_epsilon"],
    )
