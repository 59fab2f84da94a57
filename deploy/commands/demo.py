"""`shuffledp demo`."""

from pathlib import Path
from typing import Annotated

import typer

from common.errors import SettingsError
from common.protocols import Kind
from deploy.commands.example import example
from deploy.commands.options import AsJson
from deploy.commands.result import print_estimates
from deploy.datasets.sample_people import sample_people
from deploy.demo import demo as demonstration
from deploy.tasks.guarantee_table import print_guarantees
from deploy.terminal.console import show_in_browser, terminal
from deploy.terminal.json_output import print_json
from deploy.terminal.output_file import check_folder

app = typer.Typer()


@app.command(
    epilog=example(
        "shuffledp demo --users 5000 --seed 7",
        "shuffledp demo --task-kind vector --users 5000",
    ),
)
def demo(
    users: Annotated[
        str,
        typer.Option(
            help="How many people take part, or 'all': 100,000 of the 31,670,031 in the data of "
            "states, 20,000 who are made up."
        ),
    ] = "20000",
    task_kind: Annotated[
        Kind,
        typer.Option(
            help="Kind of value to collect: categorical (US states), string (US states as texts), "
            "mean (hours of sleep), vector (marks on eight questions), key-value (films seen and "
            "their stars)."
        ),
    ] = "categorical",
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
    """Collect values privately, with three processes on this machine, and compare with the truth.

    By default it is the histogram of US states of confirmed COVID-19 cases.
    """
    if users != "all" and not (users.isascii() and users.isdecimal()):
        raise SettingsError("users must be a whole number, or 'all'")
    for path in (output, html):
        check_folder(path)
    console = terminal(stderr=json)
    n_users = None if users == "all" else int(users)
    people = sample_people(task_kind, n_users, seed)
    finished = demonstration.run(people, output=output, html=html, console=console)
    opened = open_it and show_in_browser(html.resolve().as_uri())
    if json:
        print_json(finished.as_json())
        return
    console.print(finished.people.title)
    print_estimates(finished.view(), console)
    print_guarantees(finished.result.guarantees, "What each user is promised", console)
    console.print(f"Written to {output}.")
    console.print(
        f"[bold]The result as a page:[/bold] {html.resolve().as_uri()}{' (opened)' * opened}",
        soft_wrap=True,
    )
