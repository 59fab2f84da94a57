"""`shuffledp init`: write the profile that other commands read."""

import json
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from common.errors import SettingsError
from deploy.commands.example import example
from deploy.commands.profile import ADDRESSES, DEFAULT_PROFILE, FILES

app = typer.Typer()

_LAYOUTS: Final = {
    "analyzer_token_file": ("analyzer/operator.token", "analyzer.token"),
    "shuffler_token_file": ("shuffler/operator.token", "shuffler.token"),
    "authority": ("tls/authority.pem", "authority.pem"),
    "certificate": ("tls/operator.pem", "operator.pem"),
    "key": ("tls/operator.key", "operator.key"),
    "shuffler_key": ("shuffler/envelope.pub",),
    "analyzer_identity": ("analyzer/identity.pub",),
    "shuffler_identity": ("shuffler/identity.pub",),
}
"""Where each file lies: in the services' state directories, or in a compose project's secrets."""


@app.command(
    "init",
    epilog=example("shuffledp init state", "shuffledp init /run/secrets --analyzer analyzer:7001"),
)
def init(
    directory: Annotated[
        Path,
        typer.Argument(
            help="The folder that holds the services' state directories, or the secrets of a "
            "compose project."
        ),
    ],
    analyzer: Annotated[
        str, typer.Option(help="Address of the analyzer, if its state does not tell it.")
    ] = "",
    shuffler: Annotated[
        str, typer.Option(help="Address of the shuffler, if its state does not tell it.")
    ] = "",
    agent: Annotated[str, typer.Option(help="Address of your user agent: unix:PATH.")] = "",
    output: Annotated[Path, typer.Option(help="The file to write.")] = DEFAULT_PROFILE,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a profile from what a folder holds, so that commands need no addresses and tokens."""
    if not directory.is_dir():
        raise SettingsError(f"{directory} is not a folder")
    given = {"analyzer": analyzer, "shuffler": shuffler, "agent": agent}
    found = _found_in(directory) | {name: value for name, value in given.items() if value}
    if not found:
        raise SettingsError(f"{directory} holds no state directory and no secrets of a service")
    if output.exists() and not force:
        raise SettingsError(f"{output} exists; --force replaces it")
    text = "".join(
        f"{name} = {json.dumps(found[name])}\n" for name in (*ADDRESSES, *FILES) if name in found
    )
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{output} cannot be written: {error.strerror}") from error
    sys.stdout.write(f"{output}:\n{text}")


def _found_in(directory: Path) -> dict[str, str]:
    """Find files by the names that services and compose give them; return absolute paths."""
    found = {
        name: str((directory / path).resolve())
        for name, paths in _LAYOUTS.items()
        for path in reversed(paths)
        if (directory / path).is_file()
    }
    for party in ("analyzer", "shuffler"):
        address = directory / party / "address"
        if address.is_file():
            found[party] = address.read_text(encoding="ascii").strip()
    socket = directory / "user_agent.sock"
    if socket.exists():
        found["agent"] = f"unix:{socket.resolve()}"
    return found
