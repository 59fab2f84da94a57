"""`shuffledp plan`: options parsed; a plan as a table, as JSON, as a task's draft."""

import dataclasses
import datetime
import math
from typing import Any, Final, get_args

from rich.console import Console
from rich.table import Table

from common.errors import PlanError
from common.messages.guarantee import rounded_up
from common.protocols import Kind
from common.task.draft import NumberDraft, PairDraft
from deploy.planning.design import Design
from deploy.planning.planner import Plan
from deploy.planning.requirements import Requirements, Trust
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
_FLOOR: Final = "it is a floor of the decoding error: more candidates add to it."
"""For filters; with labels each has a bit that no other text touches."""
_BIASED: Final = "the loss by its projection is added, and not predicted."


# --- options --------------------------------------------------------------------------------------


def parse_head(text: str) -> tuple[float, ...]:
    """
    Parse the shares of the most frequent values, separated by commas.

    Raises:
        PlanError: One is not a number.
    """
    try:
        return tuple(float(share) for share in text.split(","))
    except ValueError as error:
        raise PlanError("head must be shares such as 0.05,0.03") from error


def parse_cap(text: str | None) -> float:
    """
    Parse a cap on the local ε: a number, or nothing, `none` or `inf` for no cap.

    Raises:
        PlanError: It is none of these.
    """
    if text is None or text == "none":
        return math.inf
    try:
        return float(text)
    except ValueError as error:
        raise PlanError("the local cap must be a number, or none") from error


def parse_trust(text: str) -> Trust:
    """
    Parse what the shuffler is trusted with.

    Raises:
        PlanError: It is none of the three words.
    """
    known: tuple[Trust, ...] = get_args(Trust)
    for trust in known:
        if trust == text:
            return trust
    raise PlanError(f"trust must be one of: {', '.join(known)}")


def range_fields(kind: Kind, low: float | None, high: float | None) -> dict[str, Any]:
    """
    Return the fields of a draft that state the range of numbers.

    Raises:
        PlanError: The kind has no range.
    """
    ends: dict[str, Any] = {
        name: end for name, end in (("low", low), ("high", high)) if end is not None
    }
    if kind in {"categorical", "string"}:
        for name in ends:
            raise PlanError(f"--{name} is for numbers and pairs; --task-kind is {kind}")
        return {}
    return {"pairs": PairDraft(**ends)} if kind == "key-value" else {"numbers": NumberDraft(**ends)}


def default_local_cap(rounds: int) -> float:
    """Return the largest local ε of an answer that devices with default settings give."""
    one, in_all, _ = _device_caps()
    return min(one, in_all / max(1, rounds))


def _device_caps() -> tuple[float, float, float]:
    """Return a default device's caps: local ε an answer, local ε in all, central ε in all."""
    caps = {field.name: field.default for field in dataclasses.fields(UserAgentSettings)}
    names = ("local_epsilon_cap", "total_local_epsilon_cap", "total_central_epsilon_cap")
    one, in_all, central = (float(str(caps[name])) for name in names)
    return one, in_all, central


# --- for programs ---------------------------------------------------------------------------------


def to_json(plan: Plan) -> dict[str, Any]:
    """Return a plan's fields; infinite numbers become the text "inf"."""
    wanted, best = plan.wanted, plan.best
    fields = {
        **_design_as_json(best, wanted),
        "bytes_per_user": best.bytes_per_user,
        "guarantees": [guarantee_as_json(guarantee) for guarantee in plan.guarantees],
        "runners_up": [_design_as_json(other, wanted) for other in plan.runners_up],
        "users": wanted.n_users,
        "n_min": wanted.n_min,
        "domain_size": wanted.domain_size,
        "delta": wanted.delta,
    }
    if isinstance(best, ValueDesign):
        return {"kind": wanted.kind, **fields, "left_out": dict(plan.left_out)}
    return {
        **fields,
        "predicted_mse_top": best.head_errors(wanted),
        "ratio_to_central_gaussian": plan.ratio_to_central_gaussian(best),
        "binding": list(plan.binding),
        "honest_users": wanted.honest,
        "central_epsilon": plan.promise.epsilon,
        "rounds": wanted.rounds,
        "trust": wanted.trust,
    }


def _design_as_json(design: Design | ValueDesign, wanted: Requirements) -> dict[str, Any]:
    if isinstance(design, ValueDesign):
        return {
            "protocol": design.protocol,
            "mechanism": dataclasses.asdict(design.task.mechanism),
            "local_epsilon": design.local_epsilon,
            "central_epsilon": design.task.central_epsilon,
            "bytes_per_user": design.bytes_per_user,
            "predicted_mse": design.mse(wanted),
            "biased": design.biased,
            "floor": _is_floor(design),
        }
    return {
        "protocol": design.protocol,
        "mechanism": {
            "name": "local-hashing" if design.hashed else "grr",
            "buckets": design.answers,
            "local_epsilon": number_or_text(design.local_epsilon),
        },
        "dummies_per_user": design.dummies_per_user,
        "shuffler": dataclasses.asdict(design.shuffler),
        "messages_per_user": design.messages_per_user,
        "predicted_mse": design.mse(wanted),
    }


def _is_floor(design: Design | ValueDesign) -> bool:
    """Return whether decoding errs by more than is predicted."""
    return (
        isinstance(design, ValueDesign) and design.task.kind == "string" and not design.task.labels
    )


def draft(plan: Plan, now: float) -> str:
    """
    Write the plan as the draft of a task, in TOML, for `shuffledp task create`.

    The wanted guarantee becomes the budget, so that no release may exceed it.

    Args:
        plan: The plan.
        now: Seconds since 1970 UTC; the deadline is a week later.

    Raises:
        PlanError: There are several rounds, and the population has no name.
    """
    wanted, best, central = plan.wanted, plan.best, plan.promise
    if wanted.rounds > 1 and not wanted.draft_fields.get("population"):
        raise PlanError(
            f"{wanted.rounds} rounds are about the same users: name them with --population, so "
            "that their releases add up"
        )
    deadline = int(now) + int(datetime.timedelta(days=DAYS_TO_DEADLINE).total_seconds())
    local = next(row for row in plan.guarantees if row.coalition == "shuffler+analyzer")
    budgeted = dataclasses.replace(
        best.draft(wanted, shuffler_key=b"", deadline=deadline),
        budget_epsilon=wanted.central_epsilon,
        budget_delta=wanted.delta,
    )
    together = f", over {wanted.rounds} tasks" * (wanted.rounds > 1)
    comments = f"""\
# Predicted for {wanted.n_users} users: mean squared error of {_ERROR_OF[wanted.kind]} \
{best.mse(wanted):.4g}{" or more" * _is_floor(best)}.
# Promised to each of {wanted.n_min} users or more, {wanted.honest} of them honest{together}:
# epsilon {rounded_up(central.epsilon)} at delta {rounded_up(central.delta)} against the analyzer, \
{rounded_up(local.epsilon)} against shuffler and analyzer together.
# The budget is the most that all releases to these users may cost.
"""
    return comments + as_toml(budgeted)


# --- for people -----------------------------------------------------------------------------------


def show(plan: Plan, console: Console) -> None:
    """Print a plan."""
    wanted, best, mse = plan.wanted, plan.best, plan.best.mse(plan.wanted)
    console.print(
        f"[bold]{best.protocol}[/bold]: {_described(best)} and {best.bytes_per_user:,} bytes a "
        f"user{' and round' * (wanted.rounds > 1)}."
    )
    console.print(
        f"Predicted for {wanted.n_users:,} users: mean squared error of {_ERROR_OF[wanted.kind]} "
        f"{mse:.3g} (standard error {math.sqrt(mse):.2g})."
    )
    if isinstance(best, Design):
        errors = zip(wanted.head, best.head_errors(wanted), strict=True)
        top = ", ".join(f"{share:g} ± {math.sqrt(error):.2g}" for share, error in errors)
        binding = ", ".join(plan.binding) or "nothing"
        console.print(f"Top values, ± one standard error: {top}. Binding: {binding}.")
    for note in _notes(plan):
        console.print(f"[bold]Note:[/bold] {note}")
    title = f"What each of {wanted.n_min:,} users or more is promised"
    print_guarantees(plan.guarantees, title, console)
    print_whole(_comparison(plan), console)
    for name, why in plan.left_out.items():
        console.print(f"{name} is left out: {why}.", style="dim")


def _notes(plan: Plan) -> list[str]:
    """Return warnings that an operator would otherwise meet too late."""
    wanted, design = plan.wanted, plan.best
    one, in_all, central = _device_caps()
    local = design.terms(wanted).local_epsilon_of_all_rounds
    notes = []
    if design.local_epsilon > one or local > in_all or plan.promise.epsilon > central:
        notes.append(
            f"a device answers up to a local epsilon of {one:g}, and spends {in_all:g} and a "
            f"central epsilon of {central:g} in all, unless its owner allows more; this takes "
            f"{rounded_up(design.local_epsilon)}, {rounded_up(local)} and "
            f"{rounded_up(plan.promise.epsilon)}."
        )
    if wanted.n_min == wanted.n_users:
        notes.append(
            f"with fewer than {wanted.n_min:,} users nothing is released; plan for fewer with "
            "--n-min."
        )
    biased = any(
        isinstance(each, ValueDesign) and each.biased for each in (design, *plan.runners_up)
    )
    return [*notes, *[_FLOOR] * _is_floor(design), *[f"* {_BIASED}"] * biased]


def _comparison(plan: Plan) -> Table:
    table = Table(title="The best of each protocol under these requirements")
    rows = [_cells(plan, design) for design in (plan.best, *plan.runners_up)]
    if isinstance(plan.best, Design):
        table.caption = (
            "error: mean squared error of a share; ratio: to Gaussian noise on the true counts"
        )
    add_columns(table, {name: "left" if name == "protocol" else "right" for name in rows[0]})
    for cells in rows:
        table.add_row(*cells.values())
    return table


def _cells(plan: Plan, design: Design | ValueDesign) -> dict[str, str]:
    local = {"local epsilon": rounded_up(design.local_epsilon)}
    last = {"bytes": f"{design.bytes_per_user:,}", "error": f"{design.mse(plan.wanted):.3g}"}
    if isinstance(design, ValueDesign):
        name = f"{design.protocol}{' *' * design.biased}"
        central = rounded_up(design.task.central_epsilon)
        return {"protocol": name, **local, "central epsilon": central, **last}
    return {
        "protocol": design.protocol,
        "buckets": f"{design.answers:,}" if design.hashed else "-",
        **local,
        "messages": f"{design.messages_per_user:.4g}",
        **last,
        "ratio": f"{plan.ratio_to_central_gaussian(design):.3g}",
    }


def _described(design: Design | ValueDesign) -> str:
    """Describe a mechanism, its dummies and its messages."""
    if isinstance(design, ValueDesign):
        return f"local epsilon {rounded_up(design.local_epsilon)}; one report"
    name = f"local hashing into {design.answers} buckets" if design.hashed else "plain items"
    noise = f"with local epsilon {design.local_epsilon:g}"
    if math.isinf(design.local_epsilon):
        noise = "without local noise"
    mean, _ = design.shuffler.moments()
    dummies = f"{design.dummies_per_user:g} dummies a user"
    if mean:
        dummies = f"{mean:.4g} dummies an item by the shuffler"
    return f"{name} {noise}, {dummies}; {design.messages_per_user:g} messages"
