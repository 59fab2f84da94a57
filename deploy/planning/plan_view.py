"""`shuffledp plan`: wishes from the command line; a plan as a table, as JSON, as a task's draft."""

import dataclasses
import datetime
import json
import math
from typing import Any, Final, get_args

from rich.console import Console
from rich.table import Table

from common.errors import PlanError
from common.messages.guarantee import rounded_up
from common.task.shuffler_spec import ShufflerSpec
from deploy.planning.design import Design
from deploy.planning.planner import Plan, Prediction, central_gaussian_mse
from deploy.planning.requirements import Trust
from deploy.tasks.guarantee_table import print_guarantees
from deploy.terminal.json_output import guarantee_as_json, number_or_text
from deploy.terminal.tables import add_columns, print_whole
from user_agent.settings import UserAgentSettings

DAYS_TO_DEADLINE: Final = 7


def parse_head(text: str) -> tuple[float, ...]:
    """
    Read the shares of the most frequent values, separated by commas.

    Raises:
        PlanError: One is not a number.
    """
    try:
        return tuple(float(share) for share in text.split(","))
    except ValueError as error:
        raise PlanError("head must be shares such as 0.05,0.03") from error


def parse_cap(text: str | None) -> float:
    """
    Read a cap on the local ε: a number, or nothing, `none` or `inf` for no cap.

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
    Read what the shuffler is trusted with.

    Raises:
        PlanError: It is none of the three words.
    """
    known: tuple[Trust, ...] = get_args(Trust)
    for trust in known:
        if trust == text:
            return trust
    raise PlanError(f"trust must be one of: {', '.join(known)}")


def to_json(plan: Plan) -> dict[str, Any]:
    """Give a plan's fields; infinite numbers become the text "inf"."""
    wishes = plan.wishes
    return {
        **_prediction_as_json(plan.best),
        "bytes_per_user": plan.best.design.bytes_per_user,
        "predicted_mse_top": list(plan.best.mse_head),
        "ratio_to_central_gaussian": plan.ratio_to_central_gaussian,
        "guarantees": [guarantee_as_json(guarantee) for guarantee in plan.guarantees],
        "runners_up": [_prediction_as_json(other) for other in plan.runners_up],
        "binding": list(plan.binding),
        "users": wishes.n_users,
        "n_min": wishes.n_min,
        "honest_users": wishes.honest,
        "domain_size": wishes.domain_size,
        "delta": wishes.delta,
        "central_epsilon": plan.promise.epsilon,
        "rounds": wishes.rounds,
        "trust": wishes.trust,
    }


def _prediction_as_json(prediction: Prediction) -> dict[str, Any]:
    design = prediction.design
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
        "predicted_mse": prediction.mse,
    }


def draft(plan: Plan, now: float, population: str = "") -> str:
    """
    Write the plan as the draft of a task, in TOML, for `shuffledp task create`.

    The wish becomes the budget, so that nothing is released that would break it.

    Args:
        plan: What was found.
        now: Seconds since 1970 UTC; the deadline is a week later.
        population: Who is asked; needed where the same users answer several tasks.

    Raises:
        PlanError: There are several rounds and nobody said of which population.
    """
    wishes, design = plan.wishes, plan.best.design
    if wishes.rounds > 1 and not population:
        raise PlanError(
            f"{wishes.rounds} rounds are about the same users: name them with --population, so "
            "that their releases add up"
        )
    deadline = datetime.datetime.fromtimestamp(int(now), tz=datetime.UTC)
    deadline += datetime.timedelta(days=DAYS_TO_DEADLINE)
    central = plan.promise
    local = next(row for row in plan.guarantees if row.coalition == "shuffler+analyzer")
    against = "the analyzer" if central.coalition == "analyzer" else "the analyzer and the others"
    together = f", over {wishes.rounds} tasks like this together" * (wishes.rounds > 1)
    predicted = (
        f"# Predicted for {wishes.n_users} users: mean squared error of a share "
        f"{plan.best.mse:.4g}, {design.messages_per_user:g} messages a user."
    )
    promised = (
        f"# Promised to each of {wishes.n_min} users or more, {wishes.honest} of them honest"
        f"{together}:\n"
        f"# epsilon {rounded_up(central.epsilon)} at delta {rounded_up(central.delta)} against "
        f"{against}, if the shuffler is honest;\n"
        f"# epsilon {rounded_up(local.epsilon)} against shuffler and analyzer together."
    )
    lines = [
        predicted,
        promised,
        f'protocol = "{design.protocol}"',
        f"domain_size = {wishes.domain_size}",
        *([f"buckets = {design.answers}"] if design.hashed else []),
        f"dummies_per_user = {_toml_number(design.dummies_per_user)}",
        f"local_epsilon = {design.local_epsilon!r}",
        f"delta = {wishes.delta!r}",
        "# The most that all releases to these users may cost together; what would cost more is",
        "# refused.",
        *([f"population = {json.dumps(population)}"] if population else []),
        f"budget_epsilon = {wishes.central_epsilon!r}",
        f"budget_delta = {wishes.delta!r}",
        "# With fewer users than n_min at the deadline nothing is released.",
        f"n_min = {wishes.n_min}",
        f"target_size = {wishes.n_users}",
        f"assumed_honest_fraction = {wishes.honest_fraction!r}",
        "# A week ahead: choose your own.",
        f"deadline = {deadline:%Y-%m-%dT%H:%M:%SZ}",
        *_shuffler_table(design.shuffler),
    ]
    return "\n".join(lines) + "\n"


def _shuffler_table(spec: ShufflerSpec) -> list[str]:
    if spec.idle:
        return []
    return [
        "# What the shuffler does besides permuting.",
        "[shuffler]",
        f'law = "{spec.law}"',
        *(
            f"{field.name} = {getattr(spec, field.name)}"
            for field in dataclasses.fields(spec)
            if field.name != "law" and getattr(spec, field.name) != field.default
        ),
    ]


def _toml_number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def show(plan: Plan, console: Console) -> None:
    """Print a plan for people."""
    wishes, best = plan.wishes, plan.best
    design = best.design
    console.print(
        f"[bold]{design.protocol}[/bold]: {_mechanism_in_words(design)}, "
        f"{_dummies_in_words(design)}; {design.messages_per_user:g} messages and "
        f"{design.bytes_per_user:,} bytes a user{' and round' * (wishes.rounds > 1)}."
    )
    console.print(
        f"Predicted for {wishes.n_users:,} users: mean squared error of a share {best.mse:.3g} "
        f"(standard error {math.sqrt(best.mse):.2g}), {plan.ratio_to_central_gaussian:.3g} times "
        "that of Gaussian noise on the true counts."
    )
    top = ", ".join(
        f"{share:g} ± {math.sqrt(error):.2g}"
        for share, error in zip(wishes.head, best.mse_head, strict=True)
    )
    console.print(
        f"Top values, ± one standard error: {top}. Binding: {', '.join(plan.binding) or 'nothing'}."
    )
    for note in _notes(plan):
        console.print(f"[bold]Note:[/bold] {note}")
    title = f"What each of {wishes.n_min:,} users or more is promised"
    print_guarantees(plan.guarantees, title, console)
    print_whole(_comparison(plan), console)


def _notes(plan: Plan) -> list[str]:
    """Say what an operator would find out too late."""
    wishes, design = plan.wishes, plan.best.design
    caps = {field.name: field.default for field in dataclasses.fields(UserAgentSettings)}
    one, every, central = (
        float(str(caps[name]))
        for name in ("local_epsilon_cap", "total_local_epsilon_cap", "total_central_epsilon_cap")
    )
    notes = []
    local = design.terms(wishes).local_epsilon_of_all_rounds
    if design.local_epsilon > one or local > every:
        notes.append(
            f"a device answers up to a local epsilon of {one:g}, "
            f"{every:g} over all its tasks, unless its owner "
            f"allows more; this takes {rounded_up(design.local_epsilon)}, "
            f"{rounded_up(local)} in all."
        )
    if plan.promise.epsilon > central:
        notes.append(
            f"a device spends a central epsilon of {central:g} "
            f"in all unless its owner allows more; this takes {rounded_up(plan.promise.epsilon)}."
        )
    made = math.ceil(wishes.domain_size * design.shuffler.moments()[0])
    if made:
        notes.append(
            f"the shuffler makes some {made:,} dummies; one collects for tasks up to its setting "
            "most_dummies, 10,000,000 unless its operator allows more."
        )
    hidden = [
        (share, math.sqrt(error))
        for share, error in zip(wishes.head, plan.best.mse_head, strict=True)
        if error > share**2
    ]
    if hidden:
        share, error = hidden[0]
        notes.append(
            f"the noise hides even a top value: its share is {share:g}, and the standard error "
            f"{error:.2g}; --max-mse refuses plans whose error is too large to be of use."
        )
    if wishes.n_min == wishes.n_users:
        notes.append(
            f"with fewer than {wishes.n_min:,} users nothing is released; plan for fewer with "
            "--n-min."
        )
    return notes


def _comparison(plan: Plan) -> Table:
    table = Table(
        title="The best of each protocol under these wishes",
        caption="error: mean squared error of a share; ratio: to Gaussian noise on the true counts",
    )
    headings = ("buckets", "local epsilon", "messages", "bytes", "error", "ratio")
    add_columns(table, {"protocol": "left", **dict.fromkeys(headings, "right")})
    least = central_gaussian_mse(plan.wishes)
    for prediction in (plan.best, *plan.runners_up):
        design = prediction.design
        table.add_row(
            design.protocol,
            f"{design.answers:,}" if design.hashed else "-",
            rounded_up(design.local_epsilon),
            f"{design.messages_per_user:.4g}",
            f"{design.bytes_per_user:,}",
            f"{prediction.mse:.3g}",
            f"{prediction.mse / least:.3g}",
        )
    return table


def _dummies_in_words(design: Design) -> str:
    mean, _ = design.shuffler.moments()
    if mean:
        return f"{mean:.4g} dummies an item by the shuffler"
    return f"{design.dummies_per_user:g} dummies a user"


def _mechanism_in_words(design: Design) -> str:
    name = f"local hashing into {design.answers} buckets" if design.hashed else "plain items"
    if math.isinf(design.local_epsilon):
        return f"{name} without local noise"
    return f"{name} with local epsilon {design.local_epsilon:g}"
