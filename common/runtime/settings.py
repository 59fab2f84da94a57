"""A TOML file that somebody else wrote: settings, a task's draft. Read within bounds."""

import dataclasses
import math
import re
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from common.crypto.key_ring import DAY, MOST_DAYS, Schedule
from common.errors import SettingsError, ShuffleDpError
from common.runtime.logs import Level

_MOST_PARTS: Final = 32
"""Parts of a dotted key: tomllib's memory grows with the square of them, and no key has three."""
_LONG_KEY: Final = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_MOST_PARTS},}}"""
)

_PLACE: Final = re.compile(r"\(at line \d+, column \d+\)|\(at end of document\)")


def read_toml(path: Path, refusal: type[ShuffleDpError], *, most_bytes: int) -> dict[str, Any]:
    """
    Read a file's keys.

    Args:
        path: Of the file.
        refusal: The error that says what is wrong.
        most_bytes: Longer files are refused unread.

    Raises:
        refusal: The file cannot be read, is too long, or is not TOML.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(most_bytes + 1)
    except OSError as error:
        raise refusal(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > most_bytes:
        raise refusal(f"{path} is too long; at most {most_bytes} bytes are read")
    try:
        text = raw.decode("utf-8").replace("\r\n", "\n")
        if _LONG_KEY.search(text):
            raise refusal(f"a key of {path} has too many parts; at most {_MOST_PARTS} are read")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: numbers of thousands of digits too
        place = _PLACE.search(str(error))  # and no more of it: it may quote the file
        raise refusal(f"{path} is not TOML{' ' + place[0] if place else ''}") from error


S = TypeVar("S", bound="ServiceSettings")

MAX_PROCESSES: Final = 1024
MAX_PORT: Final = 65535
MAX_SETTINGS_BYTES: Final = 64 * 1024
MAX_WHOLE: Final = 2**53
"""Largest whole number that is read where a number with a decimal point is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What every service needs to know. Paths are relative to the working directory."""

    state_directory: Path
    listen: str = "127.0.0.1:0"
    """host:port, or unix:PATH. Port 0 takes a free one and writes it to STATE/address."""
    log_level: str = "INFO"
    tls_directory: Path | None = None
    """Where a development authority and this process's certificate are made on first start."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_authority: Path | None = None
    """PEM files from an authority of your own, instead of tls_directory."""
    plaintext: bool = False
    """No TLS at all. Refused unless everything is on loopback."""
    metrics_listen: str | None = None
    """host:port where Prometheus metrics are served over HTTP; without it none are. Port 0 takes a
    free one and writes it to STATE/metrics_address."""

    def __post_init__(self) -> None:
        if self.log_level not in typing.get_args(Level):
            raise SettingsError(f"log_level must be one of {', '.join(typing.get_args(Level))}")
        _check_address("listen", self.listen)
        if self.metrics_listen is not None:
            _check_address("metrics_listen", self.metrics_listen, sockets=False)
        files = (self.tls_certificate, self.tls_key, self.tls_authority)
        ways = [self.tls_directory is not None, any(files), self.plaintext]
        if sum(ways) != 1 and not (self.listen.startswith("unix:") and sum(ways) == 0):
            raise SettingsError(
                "say how calls are protected, in one way: tls_directory, or tls_certificate with "
                "tls_key and tls_authority, or plaintext = true"
            )
        only_calls = self.listen.startswith("unix:") and files[:2] == (None, None)
        if any(files) and not all(files) and not only_calls:
            raise SettingsError(
                "tls_certificate, tls_key and tls_authority go together, unless listen is a Unix "
                "socket: then tls_authority alone is enough to call others"
            )
        if self.plaintext and not is_local(self.listen):
            raise SettingsError("plaintext is allowed on loopback only")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHolderSettings(ServiceSettings):
    """What a party that keeps private keys needs to know besides."""

    state_key: Path | None = None
    """File of the 32 bytes that secrets in state_directory are encrypted under; made on first
    start. Without it, the file beside the directory that is named like it, with .key."""
    key_lifetime_days: float = 90.0
    """How long an encryption key is used for new tasks; 0: it is never replaced."""
    key_overlap_days: float = 2.0
    """How long the next key is published before it is used."""
    key_keep_days: float = 30.0
    """How long a key that is no longer used still opens, at least; longer while a task needs it."""
    reflection: bool = False
    """Tell whoever may connect, by gRPC's reflection, which calls there are."""

    def __post_init__(self) -> None:
        ServiceSettings.__post_init__(self)
        lifetime, overlap = self.key_lifetime_days, self.key_overlap_days
        if not (lifetime == 0 or 1 <= lifetime <= MOST_DAYS):
            raise SettingsError(
                f"key_lifetime_days is {lifetime}; it must be 1 .. {MOST_DAYS}, or 0 for ever"
            )
        if not 0 <= overlap <= MOST_DAYS or (lifetime and overlap > lifetime):
            raise SettingsError(
                f"key_overlap_days is {overlap}; it must be 0 .. key_lifetime_days, {lifetime}"
            )
        if not 1 <= self.key_keep_days <= MOST_DAYS:
            raise SettingsError(
                f"key_keep_days is {self.key_keep_days}; it must be 1 .. {MOST_DAYS}"
            )

    def schedule(self) -> Schedule:
        """Give how long keys live."""
        return Schedule(
            lifetime=self.key_lifetime_days * DAY or math.inf,
            overlap=self.key_overlap_days * DAY,
            keep=self.key_keep_days * DAY,
        )


def _check_address(key: str, listen: str, *, sockets: bool = True) -> None:
    if sockets and listen.startswith("unix:"):
        return
    host, _, port = listen.rpartition(":")
    digits = port.isascii() and port.isdecimal() and len(port) <= len(str(MAX_PORT))
    if not (host and digits and int(port) <= MAX_PORT):
        raise SettingsError(
            f"{key} must be host:port, with a port of 0 .. {MAX_PORT}"
            f"{', or unix:PATH' if sockets else ''}"
        )


def check_processes(opening_processes: int) -> None:
    """
    Check how many worker processes may be asked for.

    Raises:
        SettingsError: They are not between 0 and MAX_PROCESSES.
    """
    if not 0 <= opening_processes <= MAX_PROCESSES:
        raise SettingsError(
            f"opening_processes is {opening_processes}; it must be 0 .. {MAX_PROCESSES}"
        )


def is_local(address: str) -> bool:
    """Say whether an address stays on this machine: a Unix socket or a loopback address."""
    host = address.rpartition(":")[0]
    return address.startswith("unix:") or host in {"127.0.0.1", "[::1]", "localhost"}


def load(
    settings: type[S],
    path: Path | None,
    environment: Mapping[str, str],
    prefix: str,
    *,
    leave_out_unknown: bool = False,
) -> S:
    """
    Read settings of one party.

    Args:
        settings: The class to make; its fields are the keys.
        path: A flat TOML file, or None.
        environment: Variables; PREFIX_KEY in capitals overrides the file.
        prefix: Such as SHUFFLEDP_SHUFFLER.
        leave_out_unknown: Take no notice of other keys, for who needs only what all parties have.

    Raises:
        SettingsError: A key is unknown, missing, of the wrong type, or breaks a rule. Keys are
            named, values never are: one may be a secret.
    """
    kinds = typing.get_type_hints(settings)
    found: dict[str, Any] = {}
    if path is not None:
        found.update(read_toml(path, SettingsError, most_bytes=MAX_SETTINGS_BYTES))
    start = f"{prefix}_"
    found.update(
        (name.removeprefix(start).lower(), text)
        for name, text in environment.items()
        if name.startswith(start)
    )
    unknown = sorted(set(found) - set(kinds))
    if unknown and not leave_out_unknown:
        raise SettingsError(f"unknown setting: {', '.join(unknown)}")
    required = {
        field.name for field in dataclasses.fields(settings) if field.default is dataclasses.MISSING
    }
    missing = sorted(required - set(found))
    if missing:
        hint = " (no --settings given)" if path is None else ""
        raise SettingsError(f"missing setting: {', '.join(missing)}{hint}")
    return settings(
        **{key: _convert(key, value, kinds[key]) for key, value in found.items() if key in kinds}
    )


def _convert(key: str, value: Any, kind: Any) -> Any:  # noqa: ANN401  # TOML holds anything
    """Take a TOML value, or text from the environment, to the field's type."""
    optional = [option for option in typing.get_args(kind) if option is not type(None)]
    target = optional[0] if optional else kind
    if target is Path and isinstance(value, str):
        if not value or "\0" in value:
            raise SettingsError(f"{key} must not be empty, nor hold a null character")
        return Path(value)
    if target is bool and isinstance(value, str):
        if value not in {"true", "false"}:
            raise SettingsError(f"{key} must be true or false")
        return value == "true"
    if target in {int, float} and isinstance(value, str):
        try:
            return target(value)
        except ValueError as error:
            raise SettingsError(f"{key} must be a number") from error
    if target is float and type(value) is int and abs(value) <= MAX_WHOLE:
        return float(value)
    if type(value) is not target:
        raise SettingsError(f"{key} must be of type {target.__name__}")
    return value
