"""`shuffledp iterate`."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.example import example
from deploy.results.privkvm import next_draft, read_iterated
from deploy.tasks import drafts as draft_file
from deploy.terminal.console import terminal
from deploy.terminal.output_file import check_folder, write

app = typer.Typer()

_NO_KEY = bytes(31) + b"\x09"
"""Stands where `task create` puts the shuffler's key; a draft in a file has none."""


@app.command(
    epilog=example(
        "shuffledp iterate films.toml --iterations 3 --output first.toml",
        "shuffledp iterate films.toml --iterations 3 --number 2 --after first.json "
        "--output second.toml",
    ),
)
def iterate(
    draft: Annotated[
        Path,
        typer.Argument(help="The draft for all iterations: its local_epsilon is what all cost."),
    ],
    iterations: Annotated[int, typer.Option(help="How many iterations there are.")],
    output: Annotated[Path, typer.Option(help="Where the iteration's draft is written.")],
    number: Annotated[int, typer.Option(help="Which iteration, from 1 on.")] = 1,
    after: Annotated[
        Path | None,
        typer.Option(help="The result of the iteration before, as `shuffledp result --json`."),
    ] = None,
) -> None:
    """Write the draft of one iteration of PrivKVM, a task of its own, for `task create`."""
    check_folder(output)
    whole = draft_file.read(draft, _NO_KEY)
    before = None if after is None else read_iterated(after)
    write(output, draft_file.as_toml(next_draft(whole, iterations, number, before)))
    terminal().print(f"Written to {output}.", markup=False)
