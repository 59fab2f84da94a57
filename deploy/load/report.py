"""Progress bars of a load run, and its report as tables and JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from shuffledp.common.errors import ShuffleDpError
from shuffledp.common.messages.result import Histogram, Result
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.task.task import Task
from shuffledp.deploy.load.behaviour import Behaviour, CountRow, LoadPlan, Tally
from shuffledp.deploy.load.target import PartyUsage, Target
from shuffledp.deploy.load.users import SealedUsers
from shuffledp.deploy.results.estimate_table import mse_of
from shuffledp.deploy.terminal.escape import escaped, visible
from shuffledp.deploy.terminal.tables import print_rows

_WHOLE: Final = 100
"""Least figure that is printed without decimals; others have three digits."""
_BAR_WIDTH: Final = 6
"""Columns of a bar, so that count, failures and time fit into 80 columns."""


@dataclass(kw_only=True, eq=False)
class LoadReport:
    """The outcome of a load run."""

    plan: LoadPlan
    target: Target
    users: SealedUsers
    n_users: int = 0
    """Users sent so far, from the first of `users` on."""
    tally: Tally = field(default_factory=Tally)
    steps: list[dict[str, Any]] = field(default_factory=list)
    failure_reason: str | None = None
    """Reason why the last rate of a ramp did not hold; None if it held."""
    rows: list[CountRow] = field(default_factory=list)
    result: Result | None = None
    failure: ShuffleDpError | None = None
    """Error that prevented reading the shuffler's counts or the result, if any."""
    usage: dict[str, PartyUsage] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @cached_property
    def task(self) -> Task:
        """The users' task."""
        return Task.from_bytes(self.users.signed.task_bytes)

    @property
    def kinds(self) -> NDArray[np.uint8]:
        """Behaviours of the users sent so far."""
        return self.users.kinds[: self.n_users]

    def add_step(self, rate: float, seen: Tally) -> None:
        """Add the tally of one step of the ramp, and set `failure_reason`."""
        self.failure_reason = self.plan.ramp.broken_by(rate, seen) if self.plan.ramp else None
        self.steps.append(
            {
                "offered_users": rate,
                "achieved_users": seen.achieved,
                "p99_ms": seen.milliseconds().get("p99", 0.0),
                "failed_attempts": seen.failures.total(),
                "users_given_up": seen.given_up,
                "holds": self.failure_reason is None,
            }
        )

    @property
    def counts_match(self) -> bool:
        """Whether every known count is in its range."""
        return all(row.holds for row in self.rows)

    @property
    def errors(self) -> dict[str, float | None]:
        """MSE of unrefined shares, the expected MSE and their ratio; None without a histogram."""
        found = None if self.result is None else self.result.estimate
        if not isinstance(found, Histogram):
            return dict.fromkeys(("mse", "mse_theory", "mse_over_theory"))
        theory, truth = found.mse_theory, self.users.truth(self.n_users, self.task.domain_size)
        mse = mse_of(found.frequencies, truth)
        ratio = mse / theory if theory else None
        return {"mse": mse, "mse_theory": theory, "mse_over_theory": ratio}


class ProgressBars(Progress):
    """A progress bar per phase of a run."""

    def __init__(self, console: Console) -> None:
        counts = (BarColumn(_BAR_WIDTH), MofNCompleteColumn(), "{task.fields[seen]}")
        super().__init__("{task.description}", *counts, TimeElapsedColumn(), console=console)

    def start_phase(self, name: str, users: int | None) -> None:
        """Finish the last bar and start one for this many users; None if unknown."""
        self.finish()
        self.add_task(name, total=users, seen="")

    def show_tally(self, tally: Tally) -> None:
        """Show the progress of sending, and failures other than of a flood's copies."""
        failed = tally.failures.total() - tally.shed + tally.refusals.total()
        seen = f"{failed:,} failed" if failed else ""
        self.update(self.task_ids[-1], completed=tally.finished, seen=seen)

    def show_more(self, users: int) -> None:
        """Advance the bar by some users."""
        self.advance(self.task_ids[-1], users)

    def finish(self) -> None:
        """Complete the last bar."""
        for last in self.tasks[-1:]:
            self.update(last.id, total=last.total or 1, completed=last.total or 1)


def as_json(finished: LoadReport) -> dict[str, Any]:
    """Return the JSON fields of a report; rates are averages over `Tally.seconds`."""
    plan, tally, result = finished.plan, finished.tally, finished.result
    held = [step["offered_users"] for step in finished.steps if step["holds"]]
    reports = round(tally.answers[Outcome.STORED] * finished.task.expected_reports_per_user)
    return {
        "task_digest": finished.target.signed.digest().hex(),
        "target": finished.target.kind,
        "mode": plan.mode,
        "loop": "open" if plan.is_open else "closed",
        "pattern": ("burst" if plan.burst else "steady") if plan.is_open else None,
        "at_once": None if plan.is_open else plan.in_flight,
        "processes": plan.processes,
        "users": finished.n_users,
        "seconds": tally.seconds,
        "rates": {
            "offered_users": plan.rate,
            "achieved_users": tally.achieved,
            "answered_submissions": tally.per_second(tally.answers.total()),
            "stored_reports": tally.per_second(reports),
        },
        "latency_ms": tally.milliseconds(),
        "users_acknowledged": tally.acknowledged,
        "users_dropped": tally.dropped,
        "users_given_up": tally.given_up,
        "answers": {outcome.value: number for outcome, number in sorted(tally.answers.items())},
        "refusals": dict(tally.refusals),
        "failed_attempts": dict(tally.failures),
        "retries": tally.retries,
        "unanswered_submissions": tally.lost,
        "shed_copies": tally.shed,
        "counts": [asdict(row) | {"holds": row.holds} for row in finished.rows],
        "counts_match": finished.counts_match,
        "failure": None if finished.failure is None else str(finished.failure),
        "result": result
        and {
            "n_users": result.n_users,
            "n_reports": result.n_reports,
            "refused": dict(result.refused),
            **finished.errors,
        },
        "ramp": plan.ramp
        and {
            "steps": finished.steps,
            "held_users_per_second": held[-1] if held else None,
            "broke": finished.failure_reason,
        },
        "services": {party: asdict(usage) for party, usage in finished.usage.items()},
        "notes": finished.notes,
    }


def show(finished: LoadReport, console: Console, *, details: bool) -> None:
    """Print whether the counts match, rates and waits; with `details`, all figures as tables."""
    fields, match = as_json(finished), finished.counts_match
    if finished.rows:
        text = f"{'All known counts match' if match else 'Counts differ from'} the expected ones."
        console.print(text, style="" if match else "bold red")
    for sentence in _sentences(finished, fields):
        console.print(escaped(sentence))
    for note in finished.notes:
        console.print(visible(note), markup=False)
    differing = [row for row in fields["counts"] if not row["holds"]]
    tables = {"Counts that differ": differing}
    if details:
        rows = [
            {"figure": f"{group}: {name}".replace("_", " "), "value": figure}
            for group in ("rates", "latency_ms", "failed_attempts", "refusals", "result")
            for name, figure in (fields[group] or {}).items()
            if isinstance(figure, int | float)
        ]
        usage = [
            {"party": party, "cpu seconds": used.cpu_seconds, "MB": used.peak_memory_bytes / 1e6}
            for party, used in finished.usage.items()
        ]
        tables = {"Figures": rows, "Rates of the ramp": finished.steps, "Counts": fields["counts"]}
        tables["Usage"] = usage
    else:
        console.print("--details lists every figure and count, and the usage of each party.")
    for title, found in tables.items():
        if not found:
            continue
        console.print(f"[bold]{title}[/bold]", highlight=False)
        texts = {name for row in found for name, value in row.items() if isinstance(value, str)}
        names = {each: each.replace("expected_", "").replace("_", " ") for each in chain(*found)}
        cells = [{names[n]: escaped(_cell(value)) for n, value in row.items()} for row in found]
        print_rows(cells, console, texts)


def _sentences(finished: LoadReport, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on rates, waits, the ramp and failures."""
    plan, tally = finished.plan, finished.tally
    unit = "users" if plan.mode == "users" else "calls"
    how = "open loop" if plan.is_open else f"closed loop, {plan.in_flight} {unit} in flight"
    rate = _cell(fields["rates"]["achieved_users"])
    yield f"{finished.n_users:,} users, {how}: {rate} users per second."
    if waits := fields["latency_ms"]:
        half, most = _cell(waits["p50"]), _cell(waits["p99"])
        yield f"Half of the {unit} waited at most {half} ms, 99 of 100 at most {most} ms."
    if behaved := Counter(Behaviour(kind).name.lower() for kind in finished.kinds if kind):
        named = ", ".join(f"{number:,} {name}" for name, number in behaved.items())
        answers = ", ".join(f"{number:,} {name}" for name, number in fields["answers"].items())
        yield f"Misbehaving users: {named}. Answers to all users: {answers}."
    if ramp := fields["ramp"]:
        held = _cell(ramp["held_users_per_second"] or "none")
        yield f"Last rate that held: {held}. Failure: {ramp['broke'] or 'none'}."
    if failed := tally.failures.total() + tally.refusals.total():
        yield f"Failed attempts, and refusals that nobody expects: {failed:,}."
    if tally.shed:
        copies = f"{tally.shed:,} are copies that flooding users sent on purpose."
        yield f"Of these, {copies} They are never retried, and no count expects them."


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= _WHOLE else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
