"""Reports of a load run: progress bars, tables for a person and JSON for a program."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, JustifyMethod
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from common.errors import ShuffleDpError
from common.messages.result import Histogram, Result
from deploy.load.comparison import CountRow
from deploy.load.plan import LoadPlan, Step
from deploy.load.sender import Tally
from deploy.load.target import Target
from deploy.load.usage import PartyUsage
from deploy.terminal.escape import escaped, visible
from deploy.terminal.tables import add_columns, print_whole

_BAR: Final = 6
"""Columns: count, failures and time fit a terminal of 80."""


@dataclass(kw_only=True, eq=False)
class Finished:
    """The outcome of a run."""

    plan: LoadPlan
    target: Target
    n_users: int = 0
    """Users who came."""
    seen: Tally = field(default_factory=Tally)
    """Of all users but the last, who is sent alone: rates and waits are of these."""
    total: Tally = field(default_factory=Tally)
    """Of all users: counts are of these."""
    steps: list[Step] = field(default_factory=list)
    rows: list[CountRow] = field(default_factory=list)
    result: Result | None = None
    failure: ShuffleDpError | None = None
    """Why the shuffler's counts or the result are missing; None if nothing is."""
    truth: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    usage: dict[str, PartyUsage] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def counts_match(self) -> bool:
        """Whether every known count lies in its range."""
        return all(row.holds for row in self.rows)

    @property
    def errors(self) -> dict[str, float | None]:
        """The squared error of unrefined shares, a mean over items; None for other kinds."""
        found = None if self.result is None else self.result.estimate
        if not isinstance(found, Histogram):
            return dict.fromkeys(("mse", "mse_theory", "mse_over_theory"))
        theory = found.mse_theory
        mse = float(np.mean((found.frequencies - self.truth) ** 2))
        ratio = mse / theory if theory else None
        return {"mse": mse, "mse_theory": theory, "mse_over_theory": ratio}


class Bars(Progress):
    """A bar for each phase of a run."""

    def __init__(self, console: Console) -> None:
        columns = (
            BarColumn(bar_width=_BAR),
            MofNCompleteColumn(),
            TextColumn("{task.fields[seen]}"),
        )
        super().__init__("{task.description}", *columns, TimeElapsedColumn(), console=console)

    def start_phase(self, name: str, users: int | None) -> None:
        """Finish the last bar and draw one for a phase of these users; None if unknown."""
        self.finish()
        self.add_task(name, total=users, seen="")

    def show_tally(self, tally: Tally) -> None:
        """Draw the progress of sending."""
        failed = tally.failures.total() + tally.refusals.total()
        seen = f"{failed:,} failed" if failed else ""
        self.update(self.task_ids[-1], completed=tally.finished, seen=seen)

    def show_more(self, users: int) -> None:
        """Advance the bar by some users."""
        self.advance(self.task_ids[-1], users)

    def finish(self) -> None:
        """Complete the last bar."""
        for last in self.tasks[-1:]:
            self.update(last.id, total=last.total or 1, completed=last.total or 1)


def as_json(finished: Finished) -> dict[str, Any]:
    """Return every figure; rates are of `seconds`, see `Tally`."""
    plan, seen, total, result = finished.plan, finished.seen, finished.total, finished.result
    ramp = None
    if plan.ramp is not None:
        held, broke = plan.ramp.verdict(finished.steps)
        steps = [
            asdict(step) | {"holds": plan.ramp.broken_by(step) is None} for step in finished.steps
        ]
        ramp = {"steps": steps, "held_users_per_second": held, "broke": broke}
    return {
        "task_digest": finished.target.signed.digest().hex(),
        "target": finished.target.kind,
        "mode": plan.mode,
        "loop": "open" if plan.is_open else "closed",
        "pattern": plan.pattern if plan.is_open else None,
        "at_once": None if plan.is_open else plan.in_flight,
        "processes": plan.processes,
        "users": finished.n_users,
        "seconds": seen.seconds,
        "rates": {
            "offered_users": plan.rate,
            "achieved_users": seen.per_second(seen.answered),
            "answered_submissions": seen.per_second(seen.answers.total()),
            "stored_reports": seen.per_second(seen.reports),
        },
        "latency_ms": seen.milliseconds(),
        "users_acknowledged": total.acknowledged,
        "users_dropped": total.dropped,
        "users_given_up": total.given_up,
        "answers": {outcome.value: number for outcome, number in sorted(total.answers.items())},
        "refusals": dict(total.refusals),
        "failed_attempts": dict(total.failures),
        "retries": total.retries,
        "unanswered_submissions": total.lost,
        "shed_copies": total.shed,
        "counts": [asdict(row) | {"holds": row.holds} for row in finished.rows],
        "counts_match": finished.counts_match,
        "failure": None if finished.failure is None else str(finished.failure),
        "result": None
        if result is None
        else {
            "n_users": result.n_users,
            "n_reports": result.n_reports,
            "refused": dict(result.refused),
            **finished.errors,
        },
        "ramp": ramp,
        "services": {party: asdict(usage) for party, usage in finished.usage.items()},
        "notes": finished.notes,
    }


def show(finished: Finished, console: Console) -> None:
    """Print the tables."""
    plan, total, fields = finished.plan, finished.total, as_json(finished)
    unit = "users" if plan.mode == "users" else "calls"
    how = "open loop" if plan.is_open else f"closed loop, {plan.in_flight} {unit} in flight"
    figures = {
        **{f"{name}, per second": rate for name, rate in fields["rates"].items()},
        **{f"waits of {unit}, {name}, ms": wait for name, wait in fields["latency_ms"].items()},
        **{name: fields[name] for name in ("users_acknowledged", "retries")},
        **{f"failed: {cause}": number for cause, number in total.failures.items()},
        **{f"refused: {cause}": number for cause, number in total.refusals.items()},
        **{f"result: {name}": figure for name, figure in (fields["result"] or {}).items()},
    }
    known = {name: one for name, one in figures.items() if isinstance(one, int | float)}
    rows = [{"figure": name.replace("_", " "), "value": one} for name, one in known.items()]
    _print_rows(f"{finished.n_users:,} users, {how}", rows, console)
    if (ramp := fields["ramp"]) is not None:
        _print_rows("Rates of the ramp", ramp["steps"], console)
        held = _cell(ramp["held_users_per_second"] or "none")
        console.print(f"Last rate that held: {held}. Broken by: {ramp['broke'] or 'no rate'}.")
    if finished.rows:
        _print_rows("Counts", fields["counts"], console)
        if finished.counts_match:
            console.print("Every known count is as expected.")
        else:
            console.print("Counts differ from the expected ones.", style="bold red")
    usage = [{"party": party} | asdict(one) for party, one in finished.usage.items()]
    _print_rows("Usage", usage, console)
    for note in finished.notes:
        console.print(visible(note), markup=False)


def _print_rows(title: str, rows: Sequence[Mapping[str, object]], console: Console) -> None:
    """Print rows of the JSON as a table."""
    table = Table(title=title)
    for row in rows[:1]:
        sides: dict[str, JustifyMethod] = {
            name.replace("_", " "): "left" if isinstance(value, str) else "right"
            for name, value in row.items()
        }
        add_columns(table, sides)
    for row in rows:
        table.add_row(*(escaped(_cell(value)) for value in row.values()))
    print_whole(table, console)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
