"""`shuffledp plan`."""

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from analyzer import planning
from analyzer.wishes import Wishes
from common.runtime.clock import SystemClock
from deploy import plan as planner
from deploy.commands.example import example
from deploy.commands.options import AsJson
from deploy.output_file import check_folder, write
from deploy.result_json import dumps
from deploy.screen import terminal

app = typer.Typer()


@app.command(
    short_help="Find the best parameters that keep a promise.",
    epilog=example(
        "shuffledp plan --users 602325 --domain-size 915 --central-epsilon 0.02 --messages-cap "
        "2 --local-cap 4 --output draft.toml",
    ),
)
def plan(
    users: Annotated[int, typer.Option(help="Users that are expected; the error is for these.")],
    domain_size: Annotated[int, typer.Option(help="Values that a user may hold.")],
    central_epsilon: Annotated[
        float, typer.Option(help="Wanted against the analyzer, for all rounds together.")
    ],
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
        typer.Option(help="Most messages expected of a user, the own one included.  [none]"),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Tasks that the same users answer.")] = 1,
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
            "shuffler-dummies (it also adds dummies), or none."
        ),
    ] = "anonymity",
    head: Annotated[
        str,
        typer.Option(help="Shares that the most frequent values may have, such as 0.2,0.05."),
    ] = "0.05",
    max_mse: Annotated[
        float | None, typer.Option(help="Largest mean squared error of a share that is of use.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write a draft for `shuffledp task create`.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Find the protocol and parameters with the least error that keep a promise."""
    check_folder(output)
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
    console = terminal(stderr=json)
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
