"""`shuffledp init`: write the operator's profile, which `connection` reads."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from shuffledp.common.errors import SettingsError
from shuffledp.deploy.commands import connection, options
from shuffledp.deploy.terminal.files import write

app = typer.Typer()


@options.command(
    app, "shuffledp init state", "shuffledp init /run/secrets --address analyzer=analyzer:7001"
)
def init(
    directory: Annotated[Path, typer.Argument()],
    address: connection.Addresses = None,
    output: Path = connection.DEFAULT_PROFILE,
    force: options.Flag = False,
) -> None:
    """
    Write a profile from a folder's files, so that commands need no addresses or tokens.

    Options:
        directory: Folder of the services' state directories, or of compose's secrets.
        address: Address of a party, PARTY=HOST:PORT or agent=unix:PATH, if not in its state
            directory; repeatable.
        output: Profile to write.
        force: Replace the file if it exists.
    """
    if not directory.is_dir():
        raise SettingsError(f"{directory} is not a folder")
    text = profile_of(directory, connection.addresses_of(address or ()))
    if not text:
        raise SettingsError(
            f"{directory} has no service state (analyzer/, shuffler/, tls/) and no secrets; "
            "start the services first, or name the folder that contains these folders"
        )
    if output.exists() and not force:
        raise SettingsError(f"{output} exists; --force replaces it")
    write(output, text)
    sys.stdout.write(f"{output}:\n{text}")


def profile_of(directory: Path, addresses: Mapping[str, str]) -> str:
    """Return a profile of a folder's files and of addresses that are not empty."""
    found = _found_in(directory) | {name: value for name, value in addresses.items() if value}
    return "".join(
        f"{name} = {json.dumps(found[name], ensure_ascii=False)}\n"
        for name in connection.PROFILE_KEYS
        if name in found
    )


def _found_in(directory: Path) -> dict[str, str]:
    """Find files and addresses by their standard names; return absolute paths."""
    found = {
        name: str((directory / path).resolve())
        for name, paths in connection.LAYOUTS.items()
        for path in reversed(paths)
        if (directory / path).is_file()
    }
    for party in connection.SERVICES:
        address = directory / party / "address"
        if address.is_file():
            found[party] = address.read_text(encoding="utf-8").strip()
    socket = directory / "user_agent.sock"
    if socket.exists():
        found["agent"] = f"unix:{socket.resolve()}"
    return found
