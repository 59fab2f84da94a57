"""`shuffledp plan`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from common.errors import PlanError
from common.protocols import Kind
from common.runtime.clock import SystemClock
from deploy.commands.example import example
from deploy.commands.options import AsJson
from deploy.planning import plan_view
from deploy.planning.planner import plan as find_plan
from deploy.planning.requirements import Requirements
from deploy.tasks.value_parser import parse_kind
from deploy.terminal.console import terminal
from deploy.terminal.json_output import print_json
from deploy.terminal.output_file import check_folder, write

app = typer.Typer()


@app.command(
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
        typer.Option(help="Kind of value: categorical, string, mean, vector or key-value."),
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
            help="Most epsilon against shuffler and analyzer together, per answer; a number, or "
            "none.  [4, which devices accept unless their owner says otherwise]"
        ),
    ] = None,
    messages_cap: Annotated[
        float | None,
        typer.Option(
            help="Most messages expected of a user, the own one included; of items only.  [none]"
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Tasks that the same users answer; of items only.  [1]")
    ] = None,
    honest_fraction: Annotated[
        float, typer.Option(help="Share of the users that the promise relies on.")
    ] = 1.0,
    population: Annotated[
        str, typer.Option(help="Name of the users, for the draft; needed for several rounds.")
    ] = "",
    trust: Annotated[
        str | None,
        typer.Option(
            help="Trust in the shuffler: anonymity (it permutes, and forgets who), "
            "shuffler-dummies (it also adds dummies), or none. Of items only.  [anonymity]"
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            help="Shares that the most frequent values may have, such as 0.2,0.05; of items only."
            "  [0.05]"
        ),
    ] = None,
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
    of_items: dict[str, Any] = {
        "messages_cap": messages_cap,
        "rounds": rounds,
        "trust": None if trust is None else plan_view.parse_trust(trust),
        "head": None if head is None else plan_view.parse_head(head),
        "max_mse": max_mse,
    }
    cap = plan_view.default_local_cap(rounds or 1)
    wanted = Requirements(
        kind=kind,
        n_users=users,
        n_min=users if n_min is None else n_min,
        domain_size=_domain_size(kind, domain_size),
        central_epsilon=central_epsilon,
        delta=delta,
        local_cap=cap if local_cap is None else plan_view.parse_cap(local_cap),
        honest_fraction=honest_fraction,
        draft_fields=plan_view.range_fields(kind, low, high) | {"population": population},
        **{name: value for name, value in of_items.items() if value is not None},
    )
    with console.status("Checking designs with the exact accountant"):
        found = find_plan(wanted)
    if output is not None:
        write(output, plan_view.draft(found, SystemClock().now()))
    if json:
        print_json(plan_view.to_json(found))
        return
    plan_view.show(found, console)
    if local_cap is None:
        console.print(
            f"Planned for devices with default settings, which answer up to a local epsilon of "
            f"{cap:g}; --local-cap allows more, and --local-cap none any.",
            style="dim",
            highlight=False,
        )
    if output is not None:
        console.print(f"Written to {output}.")


def _domain_size(kind: Kind, domain_size: int | None) -> int:
    counted = {
        "categorical": "values a user may hold",
        "vector": "numbers a vector has",
        "key-value": "keys there are",
    }
    if domain_size is None and kind in counted:
        raise PlanError(f"--domain-size is missing: how many {counted[kind]}")
    return 1 if domain_size is None else domain_size
