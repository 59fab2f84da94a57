"""Reports of a load run: progress bars, tables for a person and JSON for a program."""

from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from deploy.load.plan import highest_held
from deploy.load.run import Finished
from deploy.load.sender import Tally
from deploy.terminal.escape import escaped, visible
from deploy.terminal.tables import add_columns, print_whole

_BAR: Final = 6
"""Columns: count, failures and time fit a terminal of 80."""


class Bars(Progress):
    """An `Observer` that draws a bar for each phase."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(bar_width=_BAR),
            MofNCompleteColumn(),
            TextColumn("{task.fields[seen]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._shown: TaskID | None = None

    def begins(self, what: str, users: int | None) -> None:
        """Finish the last bar and draw another."""
        self.finish()
        self._shown = self.add_task(what, total=users, seen="")

    def sees(self, tally: Tally) -> None:
        """Draw the progress of sending."""
        failed = tally.failures.total() + tally.refusals.total()
        if self._shown is not None:
            seen = f"{failed:,} failed" if failed else ""
            self.update(self._shown, completed=tally.finished, seen=seen)

    def more(self, users: int) -> None:
        """Draw that more users are done."""
        if self._shown is not None:
            self.advance(self._shown, users)

    def finish(self) -> None:
        """Complete the last bar."""
        if self._shown is not None:
            total = self.tasks[-1].total or 1
            self.update(self._shown, total=total, completed=total)


def as_json(finished: Finished) -> dict[str, Any]:
    """Return every figure; rates are of `seconds`, see `Tally`."""
    plan, seen, total, result = finished.plan, finished.seen, finished.total, finished.result
    held, _ = highest_held(finished.steps)
    return {
        "task_digest": finished.target.signed.digest().hex(),
        "target": finished.target.kind,
        "mode": plan.mode,
        "loop": "open" if plan.is_open else "closed",
        "burst": plan.burst if plan.is_open else None,
        "at_once": None if plan.is_open else plan.in_flight,
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
        "ramp": None
        if plan.ramp is None
        else {
            "steps": [asdict(step) | {"broken_by": step.broken_by} for step in finished.steps],
            "held_users_per_second": held,
        },
        "services": {party: asdict(usage) for party, usage in finished.usage.items()},
        "notes": finished.notes,
    }


def show(finished: Finished, console: Console) -> None:
    """Print the tables."""
    print_whole(_figures(finished), console)
    if finished.steps:
        headings = ("offered", "achieved", "p99 of waits", "failed", "gave up", "holds")
        table = Table(title="Rates, users a second")
        add_columns(table, dict.fromkeys(headings, "right"))
        for step in finished.steps:
            figures = (f"{step.offered:,.1f}", f"{step.achieved:,.1f}", f"{step.p99:,.1f} ms")
            failed = (f"{step.failures:,}", f"{step.given_up:,}")
            table.add_row(*figures, *failed, "no" if step.broken_by else "yes")
        print_whole(table, console)
        console.print(highest_held(finished.steps)[1])
    if finished.rows:
        table = Table(title="Counts")
        add_columns(table, {"of": "left", "expected": "right", "counted": "right", "holds": "left"})
        for row in finished.rows:
            table.add_row(row.what, row.expected, f"{row.counted:,}", "yes" if row.holds else "no")
        print_whole(table, console)
        if finished.counts_match:
            known = "" if finished.failure is None else " known"
            console.print(f"Every{known} count is as expected.")
        else:
            console.print("Counts differ from the expected ones.", style="bold red")
    table = Table(title="Usage")
    add_columns(table, {"": "left", "CPU": "right", "peak memory": "right"})
    for party, usage in finished.usage.items():
        memory = f"{usage.peak_memory_bytes / 2**20:,.0f} MiB"
        table.add_row(escaped(party), f"{usage.cpu_seconds:,.2f} s", memory)
    print_whole(table, console)
    for note in finished.notes:
        console.print(visible(note), markup=False)


def _figures(finished: Finished) -> Table:
    plan, fields = finished.plan, as_json(finished)
    rates, result = fields["rates"], fields["result"]
    what, unit = ("user", "users") if plan.mode == "users" else ("call", "calls")
    how = "open loop" if plan.is_open else f"closed loop, {plan.in_flight} {unit} in flight"
    table = Table(title=f"{finished.n_users:,} users, {how}", show_header=False)
    table.add_column(overflow="fold")
    table.add_column(justify="right")
    if plan.rate is not None:
        table.add_row("offered, users a second", f"{plan.rate:,.1f}")
    table.add_row("achieved, users a second", f"{rates['achieved_users']:,.1f}")
    table.add_row("answered, submissions a second", f"{rates['answered_submissions']:,.1f}")
    table.add_row("stored, reports a second", f"{rates['stored_reports']:,.1f}")
    for name, milliseconds in fields["latency_ms"].items():
        table.add_row(f"wait of a {what}, {name}", f"{milliseconds:,.1f} ms")
    table.add_row("users acknowledged", f"{fields['users_acknowledged']:,}")
    table.add_row("retries", f"{fields['retries']:,}")
    for cause, number in (fields["failed_attempts"] | fields["refusals"]).items():
        table.add_row(f"failed: {escaped(cause)}", f"{number:,}")
    if result is not None:
        table.add_row("users counted by the analyzer", f"{result['n_users']:,}")
        table.add_row("reports counted by the analyzer", f"{result['n_reports']:,}")
        for name, figure in finished.errors.items():
            table.add_row(name.replace("_", " "), f"{figure:.3g}")
    return table
