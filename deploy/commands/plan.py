"""`shuffledp plan`."""

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from common.errors import PlanError
from common.protocols import Kind
from common.runtime.clock import SystemClock
from common.task.draft import NumberDraft, PairDraft
from deploy.commands.example import example
from deploy.commands.options import AsJson
from deploy.planning import kind_plan_view as kind_plan
from deploy.planning import plan_view as planner
from deploy.planning import planner as planning
from deploy.planning.kind_planning import KindWishes, plan_kind
from deploy.planning.requirements import Wishes
from deploy.tasks.value_parser import parse_kind
from deploy.terminal.console import terminal
from deploy.terminal.json_output import dumps
from deploy.terminal.output_file import check_folder, write

app = typer.Typer()


@app.command(
    short_help="Find the best parameters that keep a promise.",
    epilog=example(
        "shuffledp plan --users 602325 --domain-size 915 --central-epsilon 0.02 --messages-cap "
        "2 --local-cap 4 --output draft.toml",
        "shuffledp plan --task-kind vector --users 20000 --domain-size 8 --low 1 --high 5 "
        "--central-epsilon 0.5",
    ),
)
def plan(
    users: Annotated[int, typer.Option(help="Users that are expected; the error is for these.")],
    central_epsilon: Annotated[
        float, typer.Option(help="Wanted against the analyzer, for all rounds together.")
    ],
    domain_size: Annotated[
        int | None,
        typer.Option(help="Values that a user may hold; numbers of a vector, or keys."),
    ] = None,
    task_kind: Annotated[
        str,
        typer.Option(help="What is collected: categorical, string, mean, vector or key-value."),
    ] = "categorical",
    low: Annotated[
        float | None, typer.Option(help="Least number of a range; of numbers and pairs.  [-1]")
    ] = None,
    high: Annotated[
        float | None, typer.Option(help="Largest number of a range; of numbers and pairs.  [1]")
    ] = None,
    n_min: Annotated[
        int | None, typer.Option(help="Fewest users that the promise must hold for.  [all]")
    ] = None,
    delta: Annotated[float, typer.Option(help="For all rounds together.")] = 1e-6,
    local_cap: Annotated[
        str | None,
        typer.Option(
            help="Most epsilon against shuffler and analyzer together, per answer; devices accept "
            "4 unless their owner says otherwise.  [none]"
        ),
    ] = None,
    messages_cap: Annotated[
        float | None,
        typer.Option(
            help="Most messages expected of a user, the own one included; of items only.  [none]"
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="Tasks that the same users answer; of items only.")
    ] = 1,
    honest_fraction: Annotated[
        float, typer.Option(help="Share of the users that the promise relies on.")
    ] = 1.0,
    population: Annotated[
        str, typer.Option(help="Name of the users, for the draft; needed for several rounds.")
    ] = "",
    trust: Annotated[
        str,
        typer.Option(
            help="What the shuffler is relied on for: anonymity (it permutes, and forgets who), "
            "shuffler-dummies (it also adds dummies), or none. Of items only."
        ),
    ] = "anonymity",
    head: Annotated[
        str,
        typer.Option(
            help="Shares that the most frequent values may have, such as 0.2,0.05; of items only."
        ),
    ] = "0.05",
    max_mse: Annotated[
        float | None,
        typer.Option(help="Largest mean squared error of a share that is of use; of items only."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write a draft for `shuffledp task create`.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Find the protocol and parameters with the least error that keep a promise."""
    check_folder(output)
    kind, console = parse_kind(task_kind), terminal(stderr=json)
    for name, end in (("low", low), ("high", high)):
        if end is not None and kind in {"categorical", "string"}:
            raise PlanError(f"--{name} is for numbers and pairs; --task-kind is {kind}")
    if kind != "categorical":
        for name, value, default in (
            ("rounds", rounds, 1),
            ("messages-cap", messages_cap, None),
            ("max-mse", max_mse, None),
            ("trust", trust, "anonymity"),
            ("head", head, "0.05"),
        ):
            if value != default:
                raise PlanError(f"--{name} is for categorical data; --task-kind is {kind}")
        _plan_kind(
            KindWishes(
                kind=kind,
                n_users=users,
                n_min=users if n_min is None else n_min,
                central_epsilon=central_epsilon,
                delta=delta,
                size=_size(kind, domain_size),
                local_cap=planner.parse_cap(local_cap),
                honest_fraction=honest_fraction,
                fields=_range(kind, low, high) | {"population": population},
            ),
            output,
            json=json,
        )
        return
    if domain_size is None:
        raise PlanError("--domain-size is missing: how many values a user may hold")
    wishes = Wishes(
        n_users=users,
        n_min=users if n_min is None else n_min,
        domain_size=domain_size,
        central_epsilon=central_epsilon,
        delta=delta,
        local_cap=planner.parse_cap(local_cap),
        messages_cap=math.inf if messages_cap is None else messages_cap,
        rounds=rounds,
        honest_fraction=honest_fraction,
        trust=planner.parse_trust(trust),
        head=planner.parse_head(head),
        max_mse=math.inf if max_mse is None else max_mse,
    )
    with console.status("Judging designs with the exact accountant"):
        found = planning.plan(wishes)
    if output is not None:
        write(output, planner.draft(found, SystemClock().now(), population))
    if json:
        sys.stdout.write(dumps(planner.to_json(found)) + "\n")
        return
    planner.show(found, console)
    if output is not None:
        console.print(f"Written to {output}.")


def _size(kind: Kind, domain_size: int | None) -> int:
    if domain_size is None and kind in {"vector", "key-value"}:
        counted = "numbers a vector has" if kind == "vector" else "keys there are"
        raise PlanError(f"--domain-size is missing: how many {counted}")
    return 1 if domain_size is None else domain_size


def _range(kind: Kind, low: float | None, high: float | None) -> dict[str, Any]:
    """Give what a draft says of the range, if its kind has one."""
    if kind == "string":
        return {}
    ends: dict[str, Any] = {
        name: end for name, end in (("low", low), ("high", high)) if end is not None
    }
    return {"pairs": PairDraft(**ends)} if kind == "key-value" else {"numbers": NumberDraft(**ends)}


def _plan_kind(wishes: KindWishes, output: Path | None, *, json: bool) -> None:
    console = terminal(stderr=json)
    with console.status("Judging designs with the exact accountant"):
        found = plan_kind(wishes)
    if output is not None:
        write(output, kind_plan.draft(found, SystemClock().now()))
    if json:
        sys.stdout.write(dumps(kind_plan.to_json(found)) + "\n")
        return
    kind_plan.show(found, console)
    if output is not None:
        console.print(f"Written to {output}.")
