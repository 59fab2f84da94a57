"""`shuffledp demo`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from common.errors import SettingsError
from deploy import demo as demonstration
from deploy.commands.example import example
from deploy.commands.options import AsJson
from deploy.output_file import check_folder
from deploy.result_json import dumps
from deploy.screen import show_in_browser, terminal

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
        typer.Option(
            min=0, help="Chooses the people, the same ones each time; the noise is always new."
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="Where the result is written.")] = Path(
        "result.json"
    ),
    html: Annotated[Path, typer.Option(help="Where the result's page is written.")] = Path(
        "result.html"
    ),
    open_it: Annotated[
        bool, typer.Option("--open", help="Open the page in this machine's browser.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Collect the IPUMS 1940 city histogram privately, with three processes on this machine."""
    if users != "all" and not (users.isascii() and users.isdecimal()):
        raise SettingsError("users must be a whole number, or 'all'")
    for path in (output, html):
        check_folder(path)
    console = terminal(stderr=json)
    n_users = None if users == "all" else int(users)
    finished = demonstration.run(n_users, seed=seed, output=output, html=html, console=console)
    shown = open_it and show_in_browser(html.resolve().as_uri())
    if json:
        sys.stdout.write(dumps(demonstration.to_json(finished)) + "\n")
        return
    demonstration.show(finished, console)
    console.print(f"Written to {output}.")
    console.print(
        f"[bold]The result as a page:[/bold] {html.resolve().as_uri()}{' (opened)' * shown}",
        soft_wrap=True,
    )
