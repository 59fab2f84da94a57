"""A plan as tables, as JSON and as the draft of a task."""

import math
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from common.errors import PlanError
from common.messages.guarantee import rounded_up
from common.protocols import Kind
from deploy.planning.design import Design
from deploy.planning.planner import Plan
from deploy.planning.value_design import ValueDesign
from deploy.tasks.drafts import as_toml
from deploy.tasks.guarantee_table import print_guarantees
from deploy.terminal.json_output import guarantee_as_json, number_or_text
from deploy.terminal.tables import add_columns, print_whole
from user_agent.settings import UserAgentSettings

DAYS_TO_DEADLINE: Final = 7
_ERROR_OF: Final[dict[Kind, str]] = {
    "categorical": "a share",
    "string": "a rare text's share",
    "mean": "the mean",
    "vector": "a mean",
    "key-value": "the share of a key that half of all own",
}


def default_local_cap(rounds: int) -> float:
    """Return the largest local ε of an answer that devices with default settings give."""
    one, in_all, _ = _device_caps()
    return min(one, in_all / max(1, rounds))


def _device_caps() -> tuple[float, float, float]:
    """Return a default device's caps: local ε an answer, local ε in all, central ε in all."""
    caps: dict[str, Any] = {each.name: each.default for each in fields(UserAgentSettings)}
    return (
        caps["local_epsilon_cap"],
        caps["total_local_epsilon_cap"],
        caps["total_central_epsilon_cap"],
    )


# --- for programs ---------------------------------------------------------------------------------


def to_json(plan: Plan) -> dict[str, Any]:
    """Return a plan's fields; infinite numbers become the text "inf"."""
    wanted, best = plan.wanted, plan.best
    found = {
        **_design_as_json(best),
        "bytes_per_user": best.bytes_per_user,
        "guarantees": [guarantee_as_json(guarantee) for guarantee in plan.guarantees],
        "runners_up": [_design_as_json(other) for other in plan.runners_up],
        "users": wanted.n_users,
        "n_min": wanted.n_min,
        "domain_size": wanted.domain_size,
        "delta": wanted.delta,
    }
    if isinstance(best, ValueDesign):
        return {"kind": wanted.kind, **found, "left_out": dict(plan.left_out)}
    return {
        **found,
        "predicted_mse_top": best.head_errors(),
        "ratio_to_central_gaussian": best.ratio_to_central_gaussian,
        "binding": list(plan.binding),
        "honest_users": wanted.honest,
        "central_epsilon": plan.promise.epsilon,
        "rounds": wanted.rounds,
        "trust": wanted.trust,
    }


def _design_as_json(design: Design) -> dict[str, Any]:
    common = {"protocol": design.protocol, "predicted_mse": design.mse}
    if isinstance(design, ValueDesign):
        return common | {
            "mechanism": asdict(design.task.mechanism),
            "local_epsilon": design.local_epsilon,
            "central_epsilon": design.task.central_epsilon,
            "bytes_per_user": design.bytes_per_user,
            "biased": design.biased,
            "floor": design.floor,
        }
    return common | {
        "mechanism": {
            "name": "local-hashing" if design.buckets else "grr",
            "buckets": design.answers,
            "local_epsilon": number_or_text(design.local_epsilon),
        },
        "dummies_per_user": design.dummies_per_user,
        "shuffler": asdict(design.shuffler),
        "messages_per_user": design.messages_per_user,
    }


def draft(plan: Plan, now: float) -> str:
    """
    Write the plan as the draft of a task for `shuffledp task create`, with a deadline a week from
    now.

    The wanted guarantee becomes the budget. Raises PlanError if several rounds have no population.
    """
    wanted, best, central = plan.wanted, plan.best, plan.promise
    if wanted.rounds > 1 and not wanted.draft_fields.get("population"):
        raise PlanError(
            f"{wanted.rounds} rounds are about the same users: name them with --population, so "
            "that their releases add up"
        )
    local = next(row for row in plan.guarantees if row.coalition == "shuffler+analyzer")
    budgeted = replace(
        best.draft,
        deadline=int(now) + DAYS_TO_DEADLINE * 24 * 3600,
        budget_epsilon=wanted.central_epsilon,
        budget_delta=wanted.delta,
    )
    together = f", over {wanted.rounds} tasks" * (wanted.rounds > 1)
    comments = f"""\
# Predicted for {wanted.n_users} users: mean squared error of {_ERROR_OF[wanted.kind]} \
{best.mse:.4g}{" or more" * best.floor}.
# Promised to each of {wanted.n_min} users or more, {wanted.honest} of them honest{together}:
# epsilon {rounded_up(central.epsilon)} at delta {rounded_up(central.delta)} against the analyzer, \
{rounded_up(local.epsilon)} against shuffler and analyzer together.
# The budget is the most that all releases to these users may cost.
"""
    return comments + as_toml(budgeted)


# --- for people -----------------------------------------------------------------------------------


def show(plan: Plan, console: Console) -> None:
    """Print a plan."""
    wanted, best = plan.wanted, plan.best
    console.print(
        f"[bold]{best.protocol}[/bold]: {_described(best)} and {best.bytes_per_user:,} bytes a "
        f"user{' and round' * (wanted.rounds > 1)}."
    )
    console.print(
        f"Predicted for {wanted.n_users:,} users: mean squared error of {_ERROR_OF[wanted.kind]} "
        f"{best.mse:.3g} (standard error {math.sqrt(best.mse):.2g})."
    )
    if not isinstance(best, ValueDesign):
        errors = zip(wanted.head, best.head_errors(), strict=True)
        top = ", ".join(f"{share:g} ± {math.sqrt(error):.2g}" for share, error in errors)
        binding = ", ".join(plan.binding) or "nothing"
        console.print(f"Top values, ± one standard error: {top}. Binding: {binding}.")
    for note in _notes(plan):
        console.print(f"[bold]Note:[/bold] {note}")
    title = f"What each of {wanted.n_min:,} users or more is promised"
    print_guarantees(plan.guarantees, title, console)
    table = Table(title="The best of each protocol under these requirements")
    if not isinstance(best, ValueDesign):
        table.caption = (
            "error: mean squared error of a share; ratio: to Gaussian noise on the true counts"
        )
    rows = [_cells(design) for design in (best, *plan.runners_up)]
    add_columns(table, {name: "left" if name == "protocol" else "right" for name in rows[0]})
    for cells in rows:
        table.add_row(*cells.values())
    print_whole(table, console)
    for name, why in plan.left_out.items():
        console.print(f"{name} is left out: {why}.", style="dim")


def _notes(plan: Plan) -> Iterator[str]:
    """Yield warnings that an operator would otherwise meet too late."""
    wanted, design = plan.wanted, plan.best
    asked = (design.local_epsilon, design.terms.local_epsilon_of_all_rounds, plan.promise.epsilon)
    caps = _device_caps()
    if any(epsilon > cap for epsilon, cap in zip(asked, caps, strict=True)):
        yield (
            "a device answers up to a local epsilon of {:g}, and spends {:g} and a central epsilon "
            "of {:g} in all, unless its owner allows more; this takes {}, {} and {}."
        ).format(*caps, *map(rounded_up, asked))
    if wanted.n_min == wanted.n_users:
        yield (
            f"with fewer than {wanted.n_min:,} users nothing is released; plan for fewer with "
            "--n-min."
        )
    if design.floor:
        yield "it is a floor of the decoding error: more candidates add to it."
    if any(each.biased for each in (design, *plan.runners_up)):
        yield "* the loss by its projection is added, and not predicted."


def _cells(design: Design) -> dict[str, str]:
    local = {"local epsilon": rounded_up(design.local_epsilon)}
    last = {"bytes": f"{design.bytes_per_user:,}", "error": f"{design.mse:.3g}"}
    if isinstance(design, ValueDesign):
        name = f"{design.protocol}{' *' * design.biased}"
        central = rounded_up(design.task.central_epsilon)
        return {"protocol": name, **local, "central epsilon": central, **last}
    return {
        "protocol": design.protocol,
        "buckets": f"{design.buckets:,}" if design.buckets else "-",
        **local,
        "messages": f"{design.messages_per_user:.4g}",
        **last,
        "ratio": f"{design.ratio_to_central_gaussian:.3g}",
    }


def _described(design: Design) -> str:
    """Describe a mechanism, its dummies and its messages."""
    if isinstance(design, ValueDesign):
        return f"local epsilon {rounded_up(design.local_epsilon)}; one report"
    name = f"local hashing into {design.buckets} buckets" if design.buckets else "plain items"
    plain = math.isinf(design.local_epsilon)
    noise = "without local noise" if plain else f"with local epsilon {design.local_epsilon:g}"
    mean, _ = design.shuffler.moments()
    dummies = f"{design.dummies_per_user:g} dummies a user"
    if mean:
        dummies = f"{mean:.4g} dummies an item by the shuffler"
    return f"{name} {noise}, {dummies}; {design.messages_per_user:g} messages"
