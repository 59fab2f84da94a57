"""A plan for texts, numbers or pairs: as a table, as JSON, as a task's draft."""

import dataclasses
import datetime
import math
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from common.messages.guarantee import rounded_up
from common.protocols import Kind
from deploy.planning.kind_planning import KindDesign, KindPlan
from deploy.planning.plan_view import DAYS_TO_DEADLINE
from deploy.tasks.drafts import as_toml
from deploy.tasks.guarantee_table import print_guarantees
from deploy.terminal.json_output import guarantee_as_json
from deploy.terminal.tables import add_columns, print_whole

_ERROR_OF: Final[dict[Kind, str]] = {
    "string": "a rare text's share",
    "mean": "the mean",
    "vector": "a mean",
    "key-value": "the share of a key that half of all own",
}
_FLOOR: Final = (
    "It is a floor of what decoding will err by: up to a candidate for every eight bits of all "
    "cohorts adds a seventh at most, more candidates add more, and so do frequent texts that are "
    "no candidates"
)
"""Said of filters. Of labels each has a bit that no other text touches."""
_BIASED: Final = "what its projection leaves out is added, and not predicted"


def to_json(plan: KindPlan) -> dict[str, Any]:
    """Give a plan's fields."""
    wishes = plan.wishes
    return {
        "kind": wishes.kind,
        **_design_as_json(plan.best),
        "guarantees": [guarantee_as_json(one) for one in plan.best.guarantees],
        "runners_up": [_design_as_json(other) for other in plan.runners_up],
        "left_out": dict(plan.left_out),
        "users": wishes.n_users,
        "n_min": wishes.n_min,
        "domain_size": wishes.size,
        "delta": wishes.delta,
    }


def _design_as_json(design: KindDesign) -> dict[str, Any]:
    return {
        "protocol": design.draft.protocol,
        "mechanism": dataclasses.asdict(design.task.mechanism),
        "local_epsilon": design.task.local_epsilon,
        "central_epsilon": design.task.central_epsilon,
        "bytes_per_user": design.task.envelope_bytes,
        "predicted_mse": design.mse,
        "biased": design.biased,
        "floor": _is_floor(design),
    }


def _is_floor(design: KindDesign) -> bool:
    """Say whether decoding errs by more than is predicted."""
    return design.task.kind == "string" and not design.task.labels


def draft(plan: KindPlan, now: float) -> str:
    """
    Write the plan as the draft of a task, in TOML, for `shuffledp task create`.

    Args:
        plan: What was found.
        now: Seconds since 1970 UTC; the deadline is a week later.
    """
    wishes, best = plan.wishes, plan.best
    task = best.task
    deadline = datetime.datetime.fromtimestamp(int(now), tz=datetime.UTC)
    deadline += datetime.timedelta(days=DAYS_TO_DEADLINE)
    predicted = (
        f"# Predicted for {wishes.n_users} users: mean squared error of {_ERROR_OF[wishes.kind]} "
        f"{best.mse:.4g}{' or more' if _is_floor(best) else ''}."
    )
    promised = (
        f"# Promised to each of {wishes.n_min} users or more: epsilon "
        f"{rounded_up(task.central_epsilon)} at delta {rounded_up(task.delta)} against the "
        "analyzer,\n"
        f"# if the shuffler is honest; epsilon {rounded_up(task.local_epsilon)} against shuffler "
        "and analyzer together."
    )
    dated = dataclasses.replace(
        best.draft,
        deadline=int(deadline.timestamp()),
        budget_epsilon=max(wishes.central_epsilon, task.central_epsilon),
        budget_delta=wishes.delta,
    )
    comment = "# The deadline is a week ahead: choose your own. Below n_min nothing is released."
    return "\n".join([predicted, promised, comment, as_toml(dated)])


def show(plan: KindPlan, console: Console) -> None:
    """Print a plan for people."""
    wishes, best = plan.wishes, plan.best
    console.print(
        f"[bold]{best.draft.protocol}[/bold] with local epsilon "
        f"{rounded_up(best.task.local_epsilon)}: one report and {best.task.envelope_bytes:,} bytes "
        "a user."
    )
    console.print(
        f"Predicted for {wishes.n_users:,} users: mean squared error of {_ERROR_OF[wishes.kind]} "
        f"{best.mse:.3g} (standard error {math.sqrt(best.mse):.2g})."
    )
    if _is_floor(best):
        console.print(f"[bold]Note:[/bold] {_FLOOR}.")
    if best.biased:
        console.print(f"[bold]Note:[/bold] {_BIASED}.")
    title = f"What each of {wishes.n_min:,} users or more is promised"
    print_guarantees(best.guarantees, title, console)
    table = Table(title="Every protocol of the kind under these wishes")
    headings = ("local epsilon", "central epsilon", "bytes", "error")
    add_columns(table, {"protocol": "left", **dict.fromkeys(headings, "right")})
    for design in (best, *plan.runners_up):
        table.add_row(
            f"{design.draft.protocol}{' *' * design.biased}",
            rounded_up(design.task.local_epsilon),
            rounded_up(design.task.central_epsilon),
            f"{design.task.envelope_bytes:,}",
            f"{design.mse:.3g}",
        )
    print_whole(table, console)
    if any(design.biased for design in plan.runners_up):
        console.print(f"* {_BIASED}.", style="dim")
    for name, why in plan.left_out.items():
        console.print(f"{name} is left out: {why}.", style="dim")
