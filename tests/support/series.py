"""Templates of series, and a month's results with drifting shares."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from shuffledp.common.messages.batch import TaskState, TaskSummary
from shuffledp.common.messages.ledger_entry import LedgerEntry
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.results.estimate_table import EstimateTable
from shuffledp.deploy.results.series import SeriesResults
from shuffledp.deploy.tasks.schedule import Series, read_series
from tests.support.ledger_entries import first_entry

_FIELDS: Final[dict[str, Any]] = {
    "protocol": '"od-hp"',
    "domain_size": 20,
    "buckets": 13,
    "dummies_per_user": 4,
    "local_epsilon": 2.0,
    "delta": 1e-6,
    "n_min": 1000,
    "target_size": 2000,
    "population": '"daily"',
    "budget_epsilon": 6.0,
    "budget_delta": 1e-5,
}
_SCHEDULE: Final[dict[str, Any]] = {
    "first": 1_700_000_000,
    "every": '"1 day"',
    "rounds": 30,
    "zone": None,
    "people": None,
}
MISSED, OVERDUE, CURRENT = 9, 12, 26


def template(folder: Path, **changes: Any) -> Path:
    """Write a template; a change to None leaves a key out."""
    lines = []
    for head, fields in (("", _FIELDS), ("[schedule]", _SCHEDULE)):
        own = fields | {k: v for k, v in changes.items() if (k in _SCHEDULE) == bool(head)}
        lines += [head, *(f"{name} = {value}" for name, value in own.items() if value is not None)]
    path = folder / "daily.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def summary(series: Series, number: int, state: TaskState, **changes: Any) -> TaskSummary:
    """Return the summary of a round's task."""
    fields: dict[str, Any] = {
        "task_digest": TaskDigest(bytes([number]) * 32),
        "state": state,
        "protocol": series.draft.protocol,
        "domain_size": series.draft.domain_size,
        "population": series.draft.population,
        "n_min": series.draft.n_min,
        "target_size": series.draft.target_size,
        "deadline": series.deadline(number),
        "n_users": 0,
        "failure": "",
    }
    return TaskSummary(**fields | changes)


def month(folder: Path, first_name: str = "Bonn", top: int = 4) -> tuple[Series, SeriesResults]:
    """Return 23 results with noise of seed 3, half refused; one round is missed, one overdue."""
    series, rng = read_series(template(folder)), np.random.default_rng(3)
    names = [first_name, *map(str, range(1, 20))]
    tasks, estimates, costs = [], dict[int, EstimateTable](), dict[int, LedgerEntry]()
    shares = 1 / np.arange(1, 21) / 3.6
    for number in range(1, CURRENT):
        shares = shares * np.exp(0.05 * rng.standard_normal(20))
        if number == MISSED:
            continue
        state = TaskState.OVERDUE if number == OVERDUE else TaskState.RELEASED
        tasks.append(summary(series, number, state))
        if state is TaskState.RELEASED:
            costs[number] = first_entry(epsilon=0.1, composed_epsilon=0.1 * number, n_users=1234)
            estimates[number] = EstimateTable(
                title="",
                name="value",
                value="share",
                names=names,
                values=shares + 0.006 * rng.standard_normal(20),
                errors=np.full(20, 0.006),
                shown=(),
            )
    rounds = series.rounds(tasks, series.deadline(CURRENT) - 1)
    figures: dict[str, Any] = {"estimates": estimates, "counted": dict.fromkeys(estimates, 617)}
    found = SeriesResults(rounds=rounds, costs=costs, top=top, **figures)
    return series, found
