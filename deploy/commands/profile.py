"""`shuffledp init`: the operator's profile, which provides defaults for commands' options."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shuffledp.common.errors import SettingsError
from shuffledp.common.limits import unknown_keys
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.files import write

app = typer.Typer()

DEFAULT_PROFILE: Final = Path("shuffledp.toml")
"""Profile in the working directory, if neither --profile nor SHUFFLEDP_PROFILE names one."""
ENVIRONMENT_PREFIX: Final = "SHUFFLEDP_PROFILE_"

_MAX_BYTES: Final = 16 * 1024

_SERVICES: Final = ("analyzer", "shuffler", "issuer")
ADDRESSES: Final = (*_SERVICES, "agent")
_KEYS: Final = "../keys/operator/"
"""Where `shuffledp keys make keys` puts an operator's files."""
_LAYOUTS: Final = {
    **{f"{each}_token_file": (f"{each}/operator.token", f"{each}.token") for each in _SERVICES},
    "authority": ("tls/authority.pem", "authority.pem", f"{_KEYS}authority.pem"),
    **{
        name: tuple(f"{folder}operator.{end}" for folder in ("tls/", "operator/", "", _KEYS))
        for name, end in (("certificate", "pem"), ("key", "key"))
    },
    "shuffler_key": ("shuffler/envelope.pub",),
    "relay_key": ("relay/relay.pub",),
    "analyzer_identity": ("analyzer/identity.pub",),
    "shuffler_identity": ("shuffler/identity.pub",),
}
"""Path of each file among the state directories, among a compose project's secrets, or beside."""
FILES: Final = tuple(_LAYOUTS)
"""Options that are paths; in a profile, they are relative to its folder."""
PROFILE_OPTIONS: Final = (*ADDRESSES, *FILES)
"""The keys of a profile, by the names of the options' parameters."""

_COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("result", "ledger", "contribute", "receipt", "live"), ()),
    "log": ("export", "check"),
    "task": ("create", "list", "show", "close"),
    "series": ("publish", "forecast", "show"),
    "sentinels": ("plant", "check"),
    "batch": ("release", "drop", "show", "erase"),
    "issuer": ("new-key", "tokens"),
}
"""
Commands and subcommands that take defaults from the profile.

`load` takes none, so that it never reaches real services by accident.
"""


def read_profile(file: Path | None) -> dict[str, str]:
    """
    Read a profile and the environment, which overrides it; resolve paths from the profile's folder.

    Without a file, reads `shuffledp.toml` in the working directory, if it exists. Raises
    SettingsError if the file cannot be read, is not TOML, or has an unknown key or non-text value.
    """
    path = file or DEFAULT_PROFILE
    fields: dict[str, Any] = {}
    if file is not None or path.exists():
        # Imported here, because help and version work without pydantic and TOML.
        from shuffledp.common.runtime.validation import read_toml

        fields = read_toml(path, SettingsError, max_bytes=_MAX_BYTES)
        if unknown := set(fields).difference(PROFILE_OPTIONS):
            raise SettingsError(unknown_keys(unknown, PROFILE_OPTIONS, "key", str(path)))
    wrong = [name for name, value in fields.items() if not isinstance(value, str)]
    if wrong:
        raise SettingsError(f"{path}: {wrong[0]} must be text")
    found = {
        name: str(path.parent / value) if name in FILES else value for name, value in fields.items()
    }
    given = {name: os.environ.get(ENVIRONMENT_PREFIX + name.upper()) for name in PROFILE_OPTIONS}
    return found | {name: value for name, value in given.items() if value}


def profile_defaults(file: Path | None) -> dict[str, Any]:
    """Return the options' defaults by command, or raise SettingsError."""
    try:
        profile = read_profile(file)
    except SettingsError as error:
        if file is None or os.environ.get("SHUFFLEDP_PROFILE") != str(file):
            raise
        raise SettingsError(f"{error}. SHUFFLEDP_PROFILE names this file") from error
    return {name: dict.fromkeys(inner, profile) or profile for name, inner in _COMMANDS.items()}


@options.command(
    app, "shuffledp init state", "shuffledp init /run/secrets --analyzer analyzer:7001"
)
def init(
    directory: Annotated[Path, typer.Argument()],
    analyzer: str = "",
    shuffler: str = "",
    issuer: str = "",
    agent: options.AgentAddress = "",
    output: Path = DEFAULT_PROFILE,
    force: options.Flag = False,
) -> None:
    """
    Write a profile from a folder's files, so that commands need no addresses or tokens.

    Options:
        directory: Folder of the services' state directories, or of compose's secrets.
        analyzer: The analyzer's address, if not in its state directory.
        shuffler: The shuffler's address, if not in its state directory.
        issuer: The issuer's address, if not in its state directory.
        output: Profile to write.
        force: Replace the file if it exists.
    """
    if not directory.is_dir():
        raise SettingsError(f"{directory} is not a folder")
    given = {"analyzer": analyzer, "shuffler": shuffler, "issuer": issuer, "agent": agent}
    text = profile_of(directory, given)
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
        for name in PROFILE_OPTIONS
        if name in found
    )


def _found_in(directory: Path) -> dict[str, str]:
    """Find files and addresses by their standard names; return absolute paths."""
    found = {
        name: str((directory / path).resolve())
        for name, paths in _LAYOUTS.items()
        for path in reversed(paths)
        if (directory / path).is_file()
    }
    for party in _SERVICES:
        address = directory / party / "address"
        if address.is_file():
            found[party] = address.read_text(encoding="utf-8").strip()
    socket = directory / "user_agent.sock"
    if socket.exists():
        found["agent"] = f"unix:{socket.resolve()}"
    return found
