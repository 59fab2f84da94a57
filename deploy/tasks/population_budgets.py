"""Compute and show populations' spent and remaining privacy budgets, from the ledger."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rich.console import Console, JustifyMethod
from rich.table import Table

from shuffledp.analyzer.budgets import (
    BudgetedRelease,
    PopulationBudget,
    basis_of,
    population_budgets,
)
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import LedgerError, PeerRefusalError, TaskError
from shuffledp.common.messages.batch import TaskSummary
from shuffledp.common.messages.guarantee import Waived, rounded_down, rounded_up
from shuffledp.common.messages.ledger_entry import ChainedEntry, ChainHead, LedgerEntry
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.terminal.escape import escaped
from shuffledp.deploy.terminal.tables import add_columns, print_whole

_COLUMNS: Final[dict[str, JustifyMethod]] = {
    "population": "left",
    **dict.fromkeys(("releases", "budget", "at delta", "spent", "left", "share spent"), "right"),
}


class LedgerReader(Protocol):
    """Source of signed tasks and of the ledger, such as a client of the analyzer."""

    async def describe(self, digest: TaskDigest) -> tuple[SignedTask, TaskSummary]:
        """Return a signed task and its state."""

    async def ledger(self) -> tuple[Sequence[ChainedEntry], ChainHead]:
        """Return all entries and the head of their verified hash chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationBudgets:
    """A population, its number of releases, and its budgets."""

    population: str
    releases: int
    budgets: tuple[PopulationBudget, ...]
    """Every budget, by decreasing spent share; empty if the spending is unknown."""
    basis: str = ""
    """What lasting questions count, and why: sentences; empty without such releases."""
    unknown: str = ""
    """Reason why the spending is unknown, such as a task that cannot be read; otherwise empty."""

    @property
    def share(self) -> float:
        """The largest spent share of a budget; infinite if the spending is unknown."""
        return self.budgets[0].share if self.budgets else math.inf


async def budgets_by_population(
    entries: Sequence[ChainedEntry], analyzer: LedgerReader
) -> tuple[PopulationBudgets, ...]:
    """Return every population's budgets, by decreasing spent share, or raise LedgerError."""
    releases = await _by_population(entries, analyzer)
    budgets = [_compose(name, spent) for name, spent in releases.items() if name]
    return tuple(sorted(budgets, key=lambda population: population.share, reverse=True))


async def budgets_of_task(task: Task, analyzer: LedgerReader) -> PopulationBudgets | None:
    """Return the budgets of a task's population, with the task's own; None without a population."""
    if not task.population:
        return None
    entries, _ = await analyzer.ledger()
    spent = (await _by_population(entries, analyzer)).get(task.population, [])
    return _compose(task.population, spent, [(task.budget_epsilon, task.budget_delta)])


async def releases_to(population: str, analyzer: LedgerReader) -> list[BudgetedRelease]:
    """Return a population's releases in the order of the ledger; raise LedgerError if unknown."""
    entries, _ = await analyzer.ledger()
    own = [each for each in entries if isinstance(each, LedgerEntry)]
    releases = await _by_population([e for e in own if e.population == population], analyzer)
    known = []
    for release in releases.get(population, []):
        if isinstance(release, str):
            raise LedgerError(f"the spent budget of {population} is unknown: {release}")
        known.append(release)
    return known


async def _by_population(
    entries: Sequence[ChainedEntry], analyzer: LedgerReader
) -> dict[str, list[BudgetedRelease | str]]:
    """Return each population's releases, or the reason where a task cannot be read."""
    spent: dict[str, list[BudgetedRelease | str]] = {}
    for entry in entries:
        if not isinstance(entry, LedgerEntry):
            continue
        releases = spent.setdefault(entry.population, [])
        try:
            signed, _ = await analyzer.describe(entry.task_digest)
            task = Task.from_bytes(signed.task_bytes)
        except (PeerRefusalError, TaskError) as error:
            releases.append(str(error))
            continue
        if task.population != entry.population:
            raise LedgerError(
                f"entry {entry.entry} of the ledger names another population than its signed task "
                f"{entry.task_digest.hex()[:12]}"
            )
        waived = Waived.parse(entry.waived)
        releases.append(BudgetedRelease.of(task, entry.n_users, entry.n_refused, waived))
    return spent


def _compose(
    population: str,
    releases: Sequence[BudgetedRelease | str],
    promised: Sequence[tuple[float, float]] = (),
) -> PopulationBudgets:
    """Compose a population's releases against its budgets and the further promised (ε, δ)."""
    unknown = [reason for reason in releases if isinstance(reason, str)]
    known = [spent for spent in releases if not isinstance(spent, str)]
    return PopulationBudgets(
        population=population,
        releases=len(releases),
        budgets=() if unknown else population_budgets(known, promised),
        basis=basis_of(known),
        unknown="; ".join(unknown),
    )


def show(populations: Sequence[PopulationBudgets], console: Console) -> None:
    """Print a row for each budget of each population, and each reason for unknown spending."""
    table = Table(
        title="Privacy budgets of populations against the analyzer",
        caption="Budget, spent and left are epsilons; spent is rounded up, the others down. "
        "Releases must stay within every budget of a population.",
    )
    add_columns(table, _COLUMNS)
    for population in populations:
        name, releases = escaped(population.population), f"{population.releases:,}"
        if population.unknown:
            table.add_row(name, releases, *"?????")
        for budget in population.budgets:
            table.add_row(
                *(name, releases, rounded_down(budget.epsilon), rounded_up(budget.delta)),
                *(rounded_up(budget.spent_epsilon), rounded_down(budget.left_epsilon)),
                rounded_up(budget.share),
            )
    print_whole(table, console)
    for population in populations:
        name = escaped(population.population)
        if population.unknown:
            console.print(f"The spent budget of {name} is unknown: {escaped(population.unknown)}.")
        elif population.basis:
            console.print(f"{name}: {population.basis}", highlight=False)


def as_json(population: PopulationBudgets) -> dict[str, Any]:
    """Return the JSON fields of a population's budgets; an infinite number is the text "inf"."""
    return {
        "population": population.population,
        "releases": population.releases,
        "unknown": population.unknown,
        "basis": population.basis,
        "budgets": [
            {
                "budget_epsilon": budget.epsilon,
                "budget_delta": budget.delta,
                "spent_epsilon": budget.spent_epsilon,
                "left_epsilon": budget.left_epsilon,
                "share_spent": budget.share,
            }
            for budget in population.budgets
        ],
    }
