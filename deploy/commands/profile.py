"""The operator's profile: addresses, tokens and certificates that commands take as defaults."""

import os
import tomllib
from pathlib import Path
from typing import Any, Final

from common.errors import SettingsError

DEFAULT_PROFILE: Final = Path("shuffledp.toml")
"""Read from the working directory where neither --profile nor SHUFFLEDP_PROFILE names another."""
ENVIRONMENT_PREFIX: Final = "SHUFFLEDP_PROFILE_"

_MAX_BYTES: Final = 16 * 1024

ADDRESSES: Final = ("analyzer", "shuffler", "agent")
FILES: Final = (
    "analyzer_token_file",
    "shuffler_token_file",
    "authority",
    "certificate",
    "key",
    "shuffler_key",
    "analyzer_identity",
    "shuffler_identity",
)
"""Paths; relative ones start at the profile's folder, and in the environment here."""

_ANALYZER_COMMANDS: Final = ("result", "ledger", "contribute", "receipt")
_ANALYZER_SUBCOMMANDS: Final = {"task": ("create", "list", "show"), "sentinels": ("plant",)}
_SHUFFLER_COMMANDS: Final = ("live",)
_SHUFFLER_SUBCOMMANDS: Final = {"task": ("close",)}
"""
Commands that take defaults, by whose operator's token they need, if any.

`load` takes none: it must never reach real services by accident.
"""


def read_profile(file: Path | None) -> dict[str, str]:
    """
    Read a profile, and the environment that overrides it.

    Args:
        file: A TOML file; without one `shuffledp.toml` in the working directory, if it exists.

    Returns:
        The values by name, paths made relative to the working directory.

    Raises:
        SettingsError: The file cannot be read, is not TOML, or has an unknown key.
    """
    wanted = file or DEFAULT_PROFILE
    fields: dict[str, Any] = {}
    if file is not None or wanted.exists():
        try:
            with wanted.open("rb") as stream:
                text = stream.read(_MAX_BYTES + 1)
            if len(text) > _MAX_BYTES:
                raise SettingsError(
                    f"{wanted} is too long; a profile has at most {_MAX_BYTES} bytes"
                )
            fields = tomllib.loads(text.decode("utf-8"))
        except OSError as error:
            raise SettingsError(f"{wanted} cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{wanted} is not a TOML file") from error
    unknown = sorted(set(fields) - {*ADDRESSES, *FILES})
    if unknown:
        raise SettingsError(f"{wanted} has an unknown key: {unknown[0][:64]}")
    wrong = [name for name, value in fields.items() if not isinstance(value, str)]
    if wrong:
        raise SettingsError(f"{wanted}: {wrong[0]} must be text")
    found = {
        name: str(wanted.parent / value) if name in FILES else value
        for name, value in fields.items()
    }
    for name in (*ADDRESSES, *FILES):
        value = os.environ.get(ENVIRONMENT_PREFIX + name.upper())
        if value:
            found[name] = value
    return found


def profile_defaults(file: Path | None) -> dict[str, Any]:
    """
    Return the defaults of all commands' options, by command and option.

    Raises:
        SettingsError: As `read_profile` does.
    """
    profile = read_profile(file)
    analyzer_token = profile.pop("analyzer_token_file", None)
    shuffler_token = profile.pop("shuffler_token_file", None)
    at_analyzer = profile | ({"token_file": analyzer_token} if analyzer_token else {})
    at_shuffler = profile | ({"token_file": shuffler_token} if shuffler_token else {})
    defaults: dict[str, Any] = dict.fromkeys(_ANALYZER_COMMANDS, at_analyzer)
    defaults |= dict.fromkeys(_SHUFFLER_COMMANDS, at_shuffler)
    for subcommands, values in (
        (_ANALYZER_SUBCOMMANDS, at_analyzer),
        (_SHUFFLER_SUBCOMMANDS, at_shuffler),
    ):
        for group, names in subcommands.items():
            defaults.setdefault(group, {}).update(dict.fromkeys(names, values))
    return defaults
