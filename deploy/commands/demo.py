"""`shuffledp demo`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from common.errors import SettingsError
from deploy import demo as demonstration
from deploy.commands.example import example
from deploy.commands.options import AsJson
from deploy.output_file import check_folder
from deploy.result_json import dumps

app = typer.Typer()


@app.command(
    short_help="Collect a real histogram privately, on this machine.",
    epilog=example(
        "shuffledp demo --users 5000 --seed 7",
    ),
)
def demo(
    users: Annotated[
        str, typer.Option(help="How many of the 602,156 people take part, or 'all'.")
    ] = "20000",
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Chooses the people; the privacy noise is never seeded."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Where the result is written.")] = Path(
        "result.json"
    ),
    json: AsJson = False,
) -> None:
    """Collect the IPUMS 1940 city histogram privately, with three processes on this machine."""
    if users != "all" and not (users.isascii() and users.isdecimal()):
        raise SettingsError("users must be a whole number, or 'all'")
    check_folder(output)
    console = Console(stderr=json)
    n_users = None if users == "all" else int(users)
    finished = demonstration.run(n_users, seed=seed, output=output, console=console)
    if json:
        sys.stdout.write(dumps(demonstration.to_json(finished)) + "\n")
        return
    demonstration.show(finished, console)
    console.print(f"Written to {output}.")
