"""The command `shuffledp`."""

import sys
from typing import Annotated

import typer

from common.errors import ShuffleDpError
from common.version import VERSION
from deploy.commands import (
    account,
    audit,
    demo,
    iterate,
    keys,
    live,
    load,
    person,
    plan,
    reproduce,
    result,
    sentinels,
    simulate,
    task,
    tokens,
)
from deploy.commands.example import example
from deploy.terminal.escape import visible

app = typer.Typer(
    no_args_is_help=True,
    epilog=example("shuffledp demo --users 5000")
    + "\n\nWords that need explaining: README.md and deploy/WORDS.md.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for part in (
    demo,
    account,
    plan,
    simulate,
    reproduce,
    audit,
    load,
    task,
    live,
    result,
    iterate,
    person,
    sentinels,
    keys,
    tokens,
):
    app.add_typer(part.app)


def _show_version(wanted: bool) -> None:  # noqa: FBT001  # the callback of an option
    if wanted:
        sys.stdout.write(f"shuffledp {VERSION}\n")
        raise typer.Exit


@app.callback()
def shuffledp(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Collect a histogram with differential privacy: one party sees who, one what, none both."""


def main() -> None:
    """Run the command; a foreseen failure is one sentence and exit status 1."""
    try:
        app()
    except ShuffleDpError as error:
        sys.exit(f"shuffledp: {visible(str(error))}")
    except KeyboardInterrupt:
        sys.exit("shuffledp: interrupted")
