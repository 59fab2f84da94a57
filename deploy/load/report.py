"""What a load run came to: a table for a person, fields for a program."""

from typing import Any

from rich.console import Console
from rich.table import Table

from common.messages.estimate import Histogram
from common.messages.result import Result
from deploy.load.ramp import Step, broken_by
from deploy.load.run import Finished
from deploy.terminal.escape import escaped, visible
from deploy.terminal.tables import add_columns, print_whole

_MEBIBYTE = 2**20


def as_json(finished: Finished) -> dict[str, Any]:
    """Give every figure. Rates are of `seconds`, see `Tally`."""
    plan, seen, total, result = finished.plan, finished.seen, finished.total, finished.result
    return {
        "task_digest": finished.target.signed.digest().hex(),
        "target": finished.target.kind,
        "mode": plan.mode,
        "loop": "open" if plan.is_open else "closed",
        "pattern": plan.pattern if plan.is_open else None,
        "at_once": None if plan.is_open else plan.at_once,
        "processes": plan.processes,
        "users": finished.n_users,
        "seconds": seen.seconds,
        "rates": {
            "offered_users": finished.offered,
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
        "counts": [
            {
                "what": row.what,
                "expected_least": row.least,
                "expected_most": row.most,
                "counted": row.counted,
                "holds": row.holds,
            }
            for row in finished.rows
        ],
        "counts_match": finished.counts_match,
        "failure": None if finished.failure is None else str(finished.failure),
        "result": None
        if result is None
        else {
            "n_users": result.n_users,
            "n_reports": result.n_reports,
            "refused": dict(result.refused),
            "mse": finished.mse,
            "mse_theory": _theory(result),
            "mse_over_theory": _ratio(finished),
        },
        "ramp": None if finished.verdict is None else _ramp_as_json(finished),
        "services": {
            party: {
                "cpu_seconds": usage.cpu_seconds,
                "peak_memory_bytes": usage.peak_memory_bytes,
            }
            for party, usage in finished.usage.items()
        },
        "notes": finished.notes,
    }


def _ratio(finished: Finished) -> float | None:
    result = finished.result
    if finished.mse is None or result is None or not _theory(result):
        return None
    return finished.mse / result.histogram.mse_theory


def _theory(result: Result) -> float | None:
    """Give the error in theory of shares of items; other kinds are not compared."""
    return result.histogram.mse_theory if isinstance(result.estimate, Histogram) else None


def _ramp_as_json(finished: Finished) -> dict[str, Any]:
    verdict = finished.verdict
    held = None if verdict is None else verdict.held
    return {
        "steps": [_step_as_json(step, _limit(finished)) for step in finished.steps],
        "held_users_per_second": None if held is None else held.offered,
        "broke": None if verdict is None else verdict.reason or None,
    }


def _step_as_json(step: Step, p99_limit: float) -> dict[str, Any]:
    return {
        "offered_users": step.offered,
        "achieved_users": step.achieved,
        "p99_ms": step.p99,
        "failed_attempts": step.failures,
        "users_given_up": step.given_up,
        "holds": broken_by(step, p99_limit) is None,
    }


def _limit(finished: Finished) -> float:
    ramp = finished.plan.ramp
    return float("inf") if ramp is None else ramp.p99_limit


def show(finished: Finished, console: Console) -> None:
    """Print the tables."""
    fields = as_json(finished)
    print_whole(_figures(finished, fields), console)
    if finished.steps:
        print_whole(_steps(finished), console)
    if finished.verdict is not None:
        console.print(finished.verdict.sentence)
    if finished.rows:
        print_whole(_counts(finished), console)
        which = "Every count" if finished.failure is None else "Every count that came"
        console.print(
            f"{which} is what it must be."
            if finished.counts_match
            else "Counts differ from what they must be.",
            style="" if finished.counts_match else "bold red",
        )
    print_whole(_usage(finished), console)
    for note in finished.notes:
        console.print(visible(note), markup=False)


def _figures(finished: Finished, fields: dict[str, Any]) -> Table:
    plan, rates, latency = finished.plan, fields["rates"], fields["latency_ms"]
    how = (
        f"open loop, {plan.pattern}"
        if plan.is_open
        else f"closed loop, {plan.at_once} {'users' if plan.mode == 'users' else 'calls'} at once"
    )
    what = "user" if plan.mode == "users" else "call"
    table = Table(title=f"{finished.n_users:,} users, {how}", show_header=False)
    table.add_column(overflow="fold")
    table.add_column(justify="right")
    if finished.offered is not None:
        table.add_row("offered, users a second", f"{finished.offered:,.1f}")
    table.add_row("achieved, users a second", f"{rates['achieved_users']:,.1f}")
    table.add_row("answered, submissions a second", f"{rates['answered_submissions']:,.1f}")
    table.add_row("stored, reports a second", f"{rates['stored_reports']:,.1f}")
    for name, milliseconds in latency.items():
        table.add_row(f"wait of a {what}, {name}", f"{milliseconds:,.1f} ms")
    table.add_row("users acknowledged", f"{fields['users_acknowledged']:,}")
    table.add_row("attempts made again", f"{fields['retries']:,}")
    for cause, number in (fields["failed_attempts"] | fields["refusals"]).items():
        table.add_row(f"failed: {escaped(cause)}", f"{number:,}")
    result = fields["result"]
    if result is not None:
        table.add_row("users counted by the analyzer", f"{result['n_users']:,}")
        table.add_row("reports counted by the analyzer", f"{result['n_reports']:,}")
        table.add_row("mean squared error", f"{result['mse']:.3g}")
        table.add_row("in theory", f"{result['mse_theory']:.3g}")
        if result["mse_over_theory"] is not None:
            table.add_row("their ratio", f"{result['mse_over_theory']:.3f}")
    return table


def _steps(finished: Finished) -> Table:
    table = Table(title="Rates, users a second")
    headings = ("offered", "achieved", "99 % waited at most", "failed attempts", "gave up", "holds")
    add_columns(table, dict.fromkeys(headings, "right"))
    for step in finished.steps:
        table.add_row(
            f"{step.offered:,.1f}",
            f"{step.achieved:,.1f}",
            f"{step.p99:,.1f} ms",
            f"{step.failures:,}",
            f"{step.given_up:,}",
            "no" if broken_by(step, _limit(finished)) else "yes",
        )
    return table


def _counts(finished: Finished) -> Table:
    table = Table(title="Counts")
    add_columns(table, {"of": "left", "expected": "right", "counted": "right", "holds": "left"})
    for row in finished.rows:
        table.add_row(row.what, row.expected, f"{row.counted:,}", "yes" if row.holds else "no")
    return table


def _usage(finished: Finished) -> Table:
    table = Table(title="What each took")
    add_columns(table, {"": "left", "CPU": "right", "memory at its peak": "right"})
    for party, usage in finished.usage.items():
        memory = usage.peak_memory_bytes / _MEBIBYTE
        table.add_row(escaped(party), f"{usage.cpu_seconds:,.2f} s", f"{memory:,.0f} MiB")
    return table
