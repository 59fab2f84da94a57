"""Spent and remaining privacy budgets of populations, from the ledger and its tasks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from rich.console import Console, JustifyMethod
from rich.table import Table

from common.crypto.signing import SignedTask
from common.errors import LedgerError, PeerRefusalError, TaskError
from common.messages.batch import TaskSummary
from common.messages.guarantee import rounded_down, rounded_up
from common.messages.ledger_entry import ChainHead, LedgerEntry
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.terminal.escape import escaped
from deploy.terminal.json_output import number_or_text
from deploy.terminal.tables import add_columns, print_whole

if TYPE_CHECKING:  # the accountant takes half a second to load
    from analyzer.budgets import BudgetedRelease, PopulationBudget

_COLUMNS: Final[dict[str, JustifyMethod]] = {
    "population": "left",
    **dict.fromkeys(("releases", "budget", "at delta", "spent", "left", "share spent"), "right"),
}


class LedgerReader(Protocol):
    """An analyzer whose tasks and ledger can be read."""

    async def describe(self, digest: TaskDigest) -> tuple[SignedTask, TaskSummary]:
        """Read a task as it was signed, and its state."""

    async def ledger(self) -> tuple[list[LedgerEntry], ChainHead]:
        """Read the whole ledger, and verify its chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationBudgets:
    """A population and its budgets."""

    population: str
    releases: int
    budgets: "tuple[PopulationBudget, ...]"
    """Every promised budget, the one with the largest spent share first; none if the spending is
    unknown."""
    unknown: str = ""
    """Why the spending is unknown: a task of theirs cannot be read."""

    @property
    def share(self) -> float:
        """The largest spent share of a budget; infinite where it is unknown."""
        return self.budgets[0].share if self.budgets else math.inf


async def of_populations(
    entries: Sequence[LedgerEntry], analyzer: LedgerReader
) -> tuple[PopulationBudgets, ...]:
    """
    Compose the spending of every population from a verified ledger, as the analyzer does.

    The largest spent share comes first, after unknown ones. Raises LedgerError if an entry names
    another population than its signed task. Cost: a call for each entry, and up to seconds for a
    population asked often.
    """
    releases = await _by_population(entries, analyzer)
    found = [_compose(name, spent) for name, spent in releases.items() if name]
    return tuple(sorted(found, key=lambda one: one.share, reverse=True))


async def of_task(task: Task, analyzer: LedgerReader) -> PopulationBudgets | None:
    """Do the same for a task's population, with the task's own budget; None without one."""
    if not task.population:
        return None
    entries, _ = await analyzer.ledger()
    spent = (await _by_population(entries, analyzer)).get(task.population, [])
    return _compose(task.population, spent, [(task.budget_epsilon, task.budget_delta)])


async def _by_population(
    entries: Sequence[LedgerEntry], analyzer: LedgerReader
) -> "dict[str, list[BudgetedRelease | str]]":
    """Return the cost of every release, or why it is unknown, by population."""
    from analyzer.budgets import BudgetedRelease  # noqa: PLC0415  # as above

    found: dict[str, list[BudgetedRelease | str]] = {}
    for entry in entries:
        releases = found.setdefault(entry.population, [])
        try:
            signed, _ = await analyzer.describe(entry.task_digest)
            task = Task.from_bytes(signed.task_bytes)
        except (PeerRefusalError, TaskError) as error:
            releases.append(str(error))
            continue
        if task.population != entry.population:
            raise LedgerError(
                f"entry {entry.entry} of the ledger names another population than its task "
                f"{entry.task_digest.hex()[:12]} was signed for"
            )
        releases.append(BudgetedRelease.of(task, entry.n_users, entry.n_refused))
    return found


def _compose(
    population: str,
    releases: "Sequence[BudgetedRelease | str]",
    promised: Sequence[tuple[float, float]] = (),
) -> PopulationBudgets:
    from analyzer.budgets import population_budgets  # noqa: PLC0415  # as above

    unknown = [reason for reason in releases if isinstance(reason, str)]
    known = [spent for spent in releases if not isinstance(spent, str)]
    return PopulationBudgets(
        population=population,
        releases=len(releases),
        budgets=() if unknown else population_budgets(known, promised),
        unknown="; ".join(unknown),
    )


def show(populations: Sequence[PopulationBudgets], console: Console) -> None:
    """Print a row for each budget of each population."""
    table = Table(
        title="Spent privacy budgets of populations, against the analyzer",
        caption="Budget, spent and left are epsilons: spent is rounded up, the others down. "
        "All budgets of a population bind.",
    )
    add_columns(table, _COLUMNS)
    for one in populations:
        name, releases = escaped(one.population), f"{one.releases:,}"
        if one.unknown:
            table.add_row(name, releases, *"?????")
        for budget in one.budgets:
            table.add_row(
                *(name, releases, rounded_down(budget.epsilon), rounded_up(budget.delta)),
                *(rounded_up(budget.spent_epsilon), rounded_down(budget.left_epsilon)),
                rounded_up(budget.share),
            )
    print_whole(table, console)
    for one in populations:
        if one.unknown:
            name, reason = escaped(one.population), escaped(one.unknown)
            console.print(f"The spending of {name} is unknown: {reason}.")


def as_json(one: PopulationBudgets) -> dict[str, Any]:
    """Return all figures, unrounded; an infinite one is the text "inf"."""
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
