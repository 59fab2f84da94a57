"""Forecast what a series costs its population and a device, and how long their budgets last."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from shuffledp.analyzer.budgets import (
    BudgetedRelease,
    PopulationBudget,
    basis_of,
    population_budgets,
)
from shuffledp.common.device_caps import DeviceCaps
from shuffledp.common.errors import BudgetError
from shuffledp.common.messages.guarantee import rounded_up, sum_upper
from shuffledp.common.task.task import Task
from shuffledp.deploy.tasks.schedule import MAX_ROUNDS, SeriesRound
from shuffledp.deploy.terminal.durations import DAY, format_duration, format_times
from shuffledp.deploy.terminal.tables import add_columns, print_whole
from shuffledp.user_agent.policy import Claim, composed_total, local_total

_PENDING: Final = {"planned", "due", "open", "overdue", "staged", "quarantined"}
"""States of rounds that may still cost privacy."""
DEVICE_CAPS: Final[Mapping[str, float]] = asdict(DeviceCaps())
"""Default limits of a device, by the names of its settings."""
_FIGURES: Final = ("composed_epsilon", "device_central_epsilon")


def forecast(
    task: Task,
    rounds: Sequence[SeriesRound],
    n_users: int,
    spent: Sequence[BudgetedRelease],
    caps: Mapping[str, float] = DEVICE_CAPS,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """
    Forecast a series' costs by the ledger's and the devices' own functions.

    Cost: milliseconds for each round, and once a second.

    Args:
        task: The task of any round: all cost the same.
        rounds: All rounds; only those that may still cost privacy count.
        n_users: Users of each batch.
        spent: The population's releases so far.
        caps: A device's limits, by the names of DEVICE_CAPS.

    Returns:
        JSON fields of each round: ε of all the population's releases after it, at the task's
        budget_delta, and ε of a device's answers, central at its cap's δ, and local (or coalition).
        And of each limit: its name, value and δ, and for how many rounds, at most MAX_ROUNDS.
    """
    release, claim = BudgetedRelease.of(task, n_users, 0), Claim.of(task)
    delta = caps["total_delta_cap"]
    column, at = ("coalition", delta) if claim.chained else ("local", None)
    answered = sum(each.state not in {*_PENDING, "missed"} for each in rounds)

    def device(n: int) -> tuple[float, float]:
        return device_totals(claim, answered + n, delta)

    costs = []
    for n, each in enumerate((each for each in rounds if each.state in _PENDING), 1):
        budgets = population_budgets([*spent, *[release] * n])
        composed = next(one.spent_epsilon for one in budgets if one.delta == task.budget_delta)
        names = (*_FIGURES, f"device_{column}_epsilon")
        figures = zip(names, (composed, *device(n)), strict=True)
        costs.append({"round": each.number, "deadline": each.deadline, **dict(figures)})

    def cap(name: str, cost: Callable[[int], float], delta: float | None = None) -> dict[str, Any]:
        rounds = _count(lambda n: cost(n) <= caps[name])
        return {"limit": name, "value": caps[name], "delta": delta, "rounds": rounds}

    central = cap("total_central_epsilon_cap", lambda n: device(n)[0], delta)
    spent_delta = sum_upper([claim.delta] * (answered + central["rounds"] + 1))
    if claim.central_epsilon < claim.local_epsilon and spent_delta > delta:
        central |= {"limit": "total_delta_cap", "value": delta, "delta": None}
    return costs, [
        _budget_end(release, spent),
        cap(f"{column}_epsilon_cap", lambda _: getattr(claim, f"{column}_epsilon")),
        cap(f"total_{column}_epsilon_cap", lambda n: device(n)[1], at),
        central,
    ]


def device_totals(claim: Claim, answers: int, delta: float) -> tuple[float, float]:
    """Return a device's ε of so many answers: central, and local or, if chained, coalition."""
    claims = [claim] * answers
    central = composed_total(claims, delta)
    if claim.chained:
        return central, composed_total(claims, delta, "coalition_epsilon")
    return central, local_total(claims)


def basis(task: Task, n_rounds: int, n_users: int, spent: Sequence[BudgetedRelease]) -> str:
    """State what a lasting question counts after all rounds, and why; empty for other tasks."""
    if not task.lasting:
        return ""
    each = BudgetedRelease.of(task, n_users, 0)
    changed = "A device counts likewise, but the sum once it finds that its person's text changes."
    return f"{basis_of([*spent, *[each] * n_rounds])} {changed}"


def check_budget(limits: Sequence[Mapping[str, Any]], n_rounds: int) -> None:
    """Raise BudgetError unless the population's budgets, the first limit, last for n_rounds."""
    if (fit := limits[0]["rounds"]) < n_rounds:
        raise BudgetError(
            f"{_text(limits[0])} ends after {fit} of {n_rounds} rounds; raise n_min or the budget, "
            "or plan fewer rounds"
        )


def shortfall(limits: Sequence[Mapping[str, Any]], n_rounds: int) -> str:
    """Name the limits that refuse every round, and the next that ends; empty if all rounds fit."""
    texts = [f"No round fits {_text(limit)}." for limit in limits if not limit["rounds"]]
    lasting = [limit for limit in limits if 0 < limit["rounds"] < n_rounds]
    if lasting:
        first = min(lasting, key=lambda limit: limit["rounds"])
        texts.append(f"{_text(first)} ends after {first['rounds']:,} of {n_rounds:,} rounds.")
    return " ".join(text[0].upper() + text[1:] for text in texts)


def _budget_end(release: BudgetedRelease, spent: Sequence[BudgetedRelease]) -> dict[str, Any]:
    """Return the budget that ends first, and how many such releases fit into all budgets."""

    def budgets(n: int) -> tuple[PopulationBudget, ...]:
        return population_budgets([*spent, *[release] * n])

    lasts = _count(lambda n: all(each.spent_epsilon <= each.epsilon for each in budgets(n)))
    first, *_ = budgets(lasts + 1)
    named = {"limit": "budget_epsilon", "value": first.epsilon, "delta": first.delta}
    return {**named, "rounds": lasts}


def _text(limit: Mapping[str, Any]) -> str:
    """Name a budget or a cap."""
    owner, delta = "the population's", "delta"
    if limit["limit"] in DEVICE_CAPS:
        owner, delta = "a device's", "a total_delta_cap of"
    at_delta = "" if limit["delta"] is None else f" at {delta} {limit['delta']:g}"
    return f"{owner} {limit['limit']} of {limit['value']:g}{at_delta}"


def _count(fits: Callable[[int], bool]) -> int:
    """Return how many of MAX_ROUNDS rounds fit, if no more fit once one does not."""
    return bisect_left(range(1, MAX_ROUNDS + 1), x=True, key=lambda n: not fits(n))


def show(
    costs: Sequence[Mapping[str, Any]],
    limits: Sequence[Mapping[str, Any]],
    every: int,
    console: Console,
) -> None:
    """Print a forecast of rounds that open every so many seconds, and whether all of them fit."""
    chained = any("device_coalition_epsilon" in cost for cost in costs)
    column, unbounded = "coalition" if chained else "local", " (both with the analyzer: no bound)"
    table = Table(
        title="Composed epsilon after each round",
        caption="Of all the population's releases, at budget_delta; and of a device that answers "
        f"every round: central at total_delta_cap, and {column}{unbounded * chained}. A device "
        "counts what each task claims, which may be more than what its release costs.",
    )
    add_columns(table, {"round": "right", "deadline": "left", "population": "right"})
    add_columns(table, {"device, central": "right", f"device, {column}": "right"})
    times = format_times([cost["deadline"] for cost in costs])
    for time, (number, _, *figures) in zip(times, (cost.values() for cost in costs), strict=True):
        table.add_row(f"{number:,}", time, *map(rounded_up, figures))
    print_whole(table, console)
    fits = f"All {len(costs):,} rounds fit every budget and limit."
    console.print(shortfall(limits, len(costs)) or fits, style="bold", soft_wrap=True)
    for limit in limits:
        if 0 < (count := limit["rounds"]) < MAX_ROUNDS:
            days = count * every / DAY
            pace = f"{days:,.3g} days" if days >= 2 else format_duration(count * every)  # noqa: PLR2004
            lasts = f"{pace}: {count:,} round{'s' * (count != 1)}."
            text = f"At this pace {_text(limit)} lasts {lasts}"
            if limit["limit"] == "total_delta_cap":
                text += " After that it charges each answer's local epsilon, not the central one."
            console.print(text, soft_wrap=True, highlight=False)
