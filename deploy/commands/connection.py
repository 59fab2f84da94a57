"""Where addresses, tokens and certificates of commands come from: profile and global options."""

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from shuffledp.common.errors import SettingsError, UsageError
from shuffledp.common.limits import unknown_keys

if TYPE_CHECKING:
    from shuffledp.deploy.clients.analyzer import OperatorClient
    from shuffledp.deploy.clients.base import ServiceClient
    from shuffledp.deploy.clients.issuer import IssuerClient
    from shuffledp.deploy.clients.shuffler import ShufflerClient
    from shuffledp.user_agent.clients import RemoteShuffler

DEFAULT_PROFILE: Final = Path("shuffledp.toml")
"""Profile in the working directory, if neither --profile nor SHUFFLEDP_PROFILE names one."""
_VARIABLE: Final = "SHUFFLEDP_PROFILE"
_MAX_BYTES: Final = 16 * 1024
SERVICES: Final = ("analyzer", "shuffler", "relay", "issuer")
ADDRESSES: Final = (*SERVICES, "agent")
_KEYS: Final = "../keys/operator/"
"""Where `shuffledp keys make keys` puts an operator's files."""
LAYOUTS: Final = {
    **{f"{each}_token_file": (f"{each}/operator.token", f"{each}.token") for each in SERVICES},
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
"""
A profile's keys that are paths, relative to its folder.

Each with where `init` finds it: among state directories, a compose project's secrets, or beside.
"""
PROFILE_KEYS: Final = (*ADDRESSES, *LAYOUTS)

Profile = Annotated[
    Path | None,
    typer.Option(
        help="TOML file with addresses, tokens and certificates, from `shuffledp init`.  "
        f"[{_VARIABLE}, or {DEFAULT_PROFILE} here, if it exists]"
    ),
]
Addresses = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PARTY=HOST:PORT",
        help=f"Address of a party ({', '.join(SERVICES)}, or agent=unix:PATH); repeatable.",
    ),
]
Authority = Annotated[
    Path | None,
    typer.Option(
        help="Authority to trust, a .pem file with your operator.pem and operator.key beside it, "
        "unless the profile names others.  [none: plaintext on this machine only]"
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="Operator token of the service: operator.token in its state directory."),
]

Client = TypeVar("Client", bound="ServiceClient")


@dataclass(frozen=True)
class CommandConnections:
    """The parties that a command talks to, by the keys of a profile."""

    fields: Mapping[str, str]
    """Values by key of a profile, with resolved paths."""
    token_file: Path | None = None
    """Token of the one service that the command talks to, instead of the profile's."""

    def knows(self, party: str) -> bool:
        """Return whether there is an address of a party."""
        return bool(self.fields.get(party))

    def address(self, party: str) -> str:
        """Return a party's address, or raise UsageError that says where to give it."""
        place = "unix:PATH" if party == "agent" else "HOST:PORT"
        return self._needed(party, f"address of the {party}", f"--address {party}={place}")

    def file(self, key: str, typed: Path | None = None) -> Path | None:
        """Return a typed file, else the profile's under this key, if any."""
        return typed or (Path(self.fields[key]) if self.fields.get(key) else None)

    def needed_file(self, key: str, typed: Path | None = None) -> Path:
        """Return a typed file, else the profile's under this key, or raise UsageError."""
        what, option = key.replace("_", " "), f"--{key.replace('_', '-')} FILE"
        return typed or Path(self._needed(key, what, option))

    def analyzer(self) -> "OperatorClient":
        """Open a channel to the analyzer, as its operator."""
        from shuffledp.deploy.clients.analyzer import OperatorClient

        return self._connected(OperatorClient, "analyzer")

    def shuffler(self, *, relay: bool = False, operator: bool = True) -> "ShufflerClient":
        """Open a channel to the first shuffler or the second; without a token for public calls."""
        from shuffledp.deploy.clients.shuffler import RelayClient, ShufflerClient

        client, party = (RelayClient, "relay") if relay else (ShufflerClient, "shuffler")
        return self._connected(client, party, operator=operator)

    def device(self) -> "AbstractAsyncContextManager[RemoteShuffler]":
        """Open a channel to the first shuffler, as a device does."""
        from shuffledp.deploy.clients.shuffler import shuffler_at

        return shuffler_at(self.address("shuffler"), self.file("authority"))

    def issuer(self, *, operator: bool = True) -> "IssuerClient":
        """Open a channel to the issuer; without a token for public calls."""
        from shuffledp.deploy.clients.issuer import IssuerClient

        return self._connected(IssuerClient, "issuer", operator=operator)

    def _connected(self, client: type[Client], party: str, *, operator: bool = True) -> Client:
        address, token = self.address(party), None
        if operator:
            key, what = f"{party}_token_file", f"operator token of the {party}"
            token = self.token_file or Path(self._needed(key, what, "--token-file FILE"))
        own = (self.file(name) for name in ("certificate", "key"))
        return client.connect(address, self.file("authority"), token, *own)

    def _needed(self, key: str, what: str, option: str) -> str:
        if value := self.fields.get(key):
            return value
        raise UsageError(
            f"there is no {what}: use {option}, or set `{key}` in a profile: write one with "
            "`shuffledp init STATE`, or, after `up`, use --profile shuffledp-local/shuffledp.toml"
        )


def connections_of(
    profile: Profile = None,
    address: Addresses = None,
    authority: Authority = None,
    token_file: TokenFile = None,
) -> CommandConnections:
    """
    Return the connections that the global options, the environment and the profile give.

    The first of these that has a value wins. Raises SettingsError for a wrong profile, and
    UsageError for a wrong address.
    """
    given = addresses_of(address or ())
    if authority is not None:
        given["authority"] = str(authority)
    return CommandConnections(read_profile(profile) | given, token_file)


def addresses_of(given: Iterable[str]) -> dict[str, str]:
    """Parse values of --address, of which an empty address hides the profile's."""
    pairs = {party: place for party, _, place in (text.partition("=") for text in given)}
    if not pairs.keys() <= set(ADDRESSES):
        raise UsageError(f"--address must be PARTY=HOST:PORT; a PARTY is {', '.join(ADDRESSES)}")
    return pairs


def read_profile(file: Path | None) -> dict[str, str]:
    """
    Read a profile and the environment, which overrides it; resolve paths from the profile's folder.

    Without a file, reads the one that SHUFFLEDP_PROFILE names, or `shuffledp.toml` in the working
    directory, if it exists. Raises SettingsError if the file cannot be read, is not TOML, or has an
    unknown key or non-text value.
    """
    named = os.environ.get(_VARIABLE)
    path, fields = file or Path(named or DEFAULT_PROFILE), dict[str, Any]()
    if file or named or path.exists():
        # Imported here, because help and version work without pydantic and TOML.
        from shuffledp.common.runtime.validation import read_toml

        try:
            fields = read_toml(path, SettingsError, max_bytes=_MAX_BYTES)
        except SettingsError as error:
            if file or not named:
                raise
            raise SettingsError(f"{error}. {_VARIABLE} names this file") from error
        if unknown := set(fields).difference(PROFILE_KEYS):
            raise SettingsError(unknown_keys(unknown, PROFILE_KEYS, "key", str(path)))
    wrong = [name for name, value in fields.items() if not isinstance(value, str)]
    if wrong:
        raise SettingsError(f"{path}: {wrong[0]} must be text")
    found = {
        name: str(path.parent / value) if name in LAYOUTS else value
        for name, value in fields.items()
    }
    given = {name: os.environ.get(f"{_VARIABLE}_{name.upper()}") for name in PROFILE_KEYS}
    return found | {name: value for name, value in given.items() if value}
