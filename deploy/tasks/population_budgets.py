"""What populations have spent of their budgets and have left: from the ledger and its tasks."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rich.console import Console, JustifyMethod
from rich.table import Table

from analyzer.budgets import Budget, Spent, budgets
from common.crypto.signing import SignedTask
from common.errors import LedgerError, PeerRefusalError, TaskError
from common.messages.guarantee import rounded_down, rounded_up
from common.messages.ledger_entry import ChainHead, LedgerEntry
from common.messages.task_summary import TaskSummary
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.terminal.escape import shown
from deploy.terminal.json_output import number_or_text
from deploy.terminal.tables import add_columns, print_whole

_COLUMNS: Final[dict[str, JustifyMethod]] = {
    "population": "left",
    "releases": "right",
    "budget": "right",
    "at delta": "right",
    "spent": "right",
    "left": "right",
    "share spent": "right",
}


class Tasks(Protocol):
    """Where tasks are read: an analyzer."""

    async def describe(self, digest: TaskDigest) -> tuple[SignedTask, TaskSummary]:
        """Read a task as it was signed, and what became of it."""


class Ledger(Tasks, Protocol):
    """An analyzer of which the ledger is read too."""

    async def ledger(self) -> tuple[list[LedgerEntry], ChainHead]:
        """Read the whole ledger, and verify its chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationBudgets:
    """One population, and every budget that it was promised."""

    population: str
    releases: int
    budgets: tuple[Budget, ...]
    """The one of which the largest share is spent first; none if what is spent is not known."""
    unknown: str = ""
    """Why what is spent is not known: a task of theirs cannot be read."""

    @property
    def share(self) -> float:
        """The largest share of a budget that is spent; infinite where it is not known."""
        return self.budgets[0].share if self.budgets else math.inf


async def of_populations(
    entries: Sequence[LedgerEntry], tasks: Tasks
) -> tuple[PopulationBudgets, ...]:
    """
    Compose what every population has spent, as the analyzer does, of its ledger and its tasks.

    A release counts for the population that its task was signed for; one whose task cannot be read,
    for the one that the ledger names. Tasks that name none stand alone, and are left out.

    Args:
        entries: The whole ledger, verified.
        tasks: Where the entries' tasks are read.

    Returns:
        The population that has spent the largest share of a budget first, before it those of which
        that is not known.

    Raises:
        LedgerError: An entry names another population than its task.
        PeerError: The analyzer does not answer.

    Cost: a call for each entry, and up to seconds for a population asked often.
    """
    by_population = await _by_population(entries, tasks)
    found = [_compose(name, together) for name, together in by_population.items() if name]
    return tuple(sorted(found, key=lambda one: one.share, reverse=True))


async def of_task(task: Task, analyzer: Ledger) -> PopulationBudgets | None:
    """Do the same for a task's population, bound by the task's own budget too; None without one."""
    if not task.population:
        return None
    entries, _ = await analyzer.ledger()
    by_population = await _by_population(entries, analyzer)
    promised = [(task.budget_epsilon, task.budget_delta)]
    return _compose(task.population, by_population.get(task.population, []), promised)


async def _by_population(
    entries: Sequence[LedgerEntry], tasks: Tasks
) -> dict[str, list[Spent | str]]:
    """Give what every release cost, or why that is not known, by whom it was asked of."""
    found: dict[str, list[Spent | str]] = {}
    for entry in entries:
        found.setdefault(entry.population, []).append(await _spent(entry, tasks))
    return found


async def _spent(entry: LedgerEntry, tasks: Tasks) -> Spent | str:
    """Give what an entry's release cost, or why its task cannot be read."""
    try:
        signed, _ = await tasks.describe(entry.task_digest)
        task = Task.from_bytes(signed.task_bytes)
    except (PeerRefusalError, TaskError) as error:
        return str(error)
    if task.population != entry.population:
        raise LedgerError(
            f"entry {entry.entry} of the ledger names another population than its task "
            f"{entry.task_digest.hex()[:12]} was signed for"
        )
    return Spent.by(task, entry.n_users, entry.n_refused)


def _compose(
    population: str,
    together: Sequence[Spent | str],
    promised: Sequence[tuple[float, float]] = (),
) -> PopulationBudgets:
    known = [spent for spent in together if isinstance(spent, Spent)]
    unknown = [reason for reason in together if isinstance(reason, str)]
    return PopulationBudgets(
        population=population,
        releases=len(together),
        budgets=() if unknown else budgets(known, promised),
        unknown="; ".join(unknown),
    )


def show(populations: Iterable[PopulationBudgets], console: Console) -> None:
    """Print a row for each budget of each population."""
    table = Table(
        title="What populations have spent of their budgets, against the analyzer",
        caption="Budget, spent and left are epsilons: what is spent rounded up, the others down. "
        "Of several budgets each binds.",
    )
    add_columns(table, _COLUMNS)
    unknown = []
    for one in populations:
        if one.unknown:
            table.add_row(shown(one.population), f"{one.releases:,}", *"?????")
            unknown.append(one)
        for budget in one.budgets:
            table.add_row(
                shown(one.population),
                f"{one.releases:,}",
                rounded_down(budget.epsilon),
                rounded_up(budget.delta),
                rounded_up(budget.spent_epsilon),
                rounded_down(budget.left_epsilon),
                rounded_up(budget.share),
            )
    print_whole(table, console)
    for one in unknown:
        console.print(f"What {shown(one.population)} has spent is not known: {shown(one.unknown)}.")


def as_json(one: PopulationBudgets) -> dict[str, Any]:
    """Give all figures, unrounded; an infinite one is the text "inf"."""
    return {
        "population": one.population,
        "releases": one.releases,
        "unknown": one.unknown,
        "budgets": [
            {
                "budget_epsilon": budget.epsilon,
                "budget_delta": budget.delta,
                "spent_epsilon": number_or_text(budget.spent_epsilon),
                "left_epsilon": budget.left_epsilon,
                "share_spent": number_or_text(budget.share),
            }
            for budget in one.budgets
        ],
    }
