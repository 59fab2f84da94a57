"""`shuffledp demo`: collect values privately on this machine."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from shuffledp.common.errors import UsageError
from shuffledp.common.protocols import Kind
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.console import (
    print_written,
    private_opener,
    show_in_browser,
    terminal,
)
from shuffledp.deploy.terminal.json_output import print_json

app = typer.Typer()


@options.command(
    app,
    "shuffledp demo --users 5000 --seed 7",
    "shuffledp demo --task-kind vector --users 5000",
    "shuffledp demo --two-shufflers",
)
def demo(
    context: typer.Context,
    users: str | None = None,
    task_kind: Kind = "categorical",
    two_shufflers: options.Flag = False,
    seed: Annotated[int | None, typer.Option(min=0)] = None,
    output: Path = Path("result.json"),
    html: Path | None = None,
    open_it: options.OpenPage = False,
    guarantees: options.AllGuarantees = False,
    json: options.AsJson = False,
) -> None:
    """
    Collect values privately with local processes; compare the result with the truth.

    The default is a histogram of confirmed COVID-19 cases by US state. At a terminal it then
    serves the result, and a page where you take part, until Ctrl-C.

    Options:
        users: Number of people, or 'all': 100,000 of the 31,670,031 cases by state, or 20,000
            simulated people for other kinds.  [5000; for open, 20000]
        task_kind: Kind of value to collect: categorical (US states), ordered (sizes of cities),
            string (US states as texts), open (US states that no list holds), mean (hours of
            sleep), vector (marks on eight questions), key-value (films seen and their stars), table
            (four attributes, two at a time, through two shufflers).
        two_shufflers: Pass the answers through two shufflers that each add dummies, so that either
            may be dishonest; for categorical and ordered values.
        seed: Seed for choosing the people; the noise is always fresh.
        output: Output file for the result.
        html: Output file for the result as a page.  [--output, with the ending .html]
    """
    from shuffledp.deploy.clients.issuer import BROWSER_PROTOCOLS
    from shuffledp.deploy.datasets.sample_people import sample_people
    from shuffledp.deploy.demo import demo as demonstration
    from shuffledp.deploy.results.result_view import print_released
    from shuffledp.deploy.tasks.drafts import with_two_shufflers

    options.check_kinds(context)
    users = users or ("20000" if task_kind == "open" else "5000")  # fewer hide every open value
    if users != "all" and not (users.isascii() and users.isdecimal()):
        raise UsageError("users must be a whole number, or 'all'")
    console, page = terminal(stderr=json), options.page_beside(output, html, "result.html")
    n_users = None if users == "all" else int(users)
    people = sample_people(task_kind, n_users, seed)
    if two_shufflers:
        people = replace(people, draft=with_two_shufflers(people.draft))

    def show(run: demonstration.DemoRun) -> None:
        console.print(run.people.title)
        view = run.view(demonstration.MAX_ITEMS)
        print_released(run.result, view, console, guarantees=guarantees, task=run.task)
        print_written([output], console)

    address = page.resolve().as_uri()
    at_terminal = sys.stdout.isatty()
    if at_terminal and not json and people.draft["protocol"] in BROWSER_PROTOCOLS:
        with private_opener() as opener:
            files = {"output": output, "html": page}
            visit = demonstration.Visit(people=people, console=console, show=show, **files)
            visit.run(opener if open_it else None)
        return
    finished = demonstration.run(people, output=output, html=page, console=console)
    opened = open_it and show_in_browser(address)
    if json:
        print_json(finished.as_json())
        return
    show(finished)
    shown = f"{address}{' (opened)' * opened}"
    console.print(f"[bold]The result as a page:[/bold] {shown}", soft_wrap=True)
    if at_terminal:
        console.print(f"The page to take part has no question of the kind {task_kind} yet.")
