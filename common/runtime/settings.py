"""Settings of a service: a TOML file, overridden by the environment."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.dataclasses import dataclass

from shuffledp.common.crypto.key_ring import DAY, MAX_DAYS, Schedule
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.access import is_local
from shuffledp.common.runtime.logs import Level
from shuffledp.common.runtime.peer import networks
from shuffledp.common.runtime.validation import STRICT, from_text, read_toml, validated

S = TypeVar("S", bound="ServiceSettings")

MAX_PROCESSES: Final = 1024
MAX_PORT: Final = 65535
MAX_SETTINGS_BYTES: Final = 64 * 1024
_HOST: Final = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_ALL_ADDRESSES: Final = ("0.0.0.0:", "[::]:")


def _file_name(given: object) -> object:
    if isinstance(given, str) and (not given or "\0" in given):
        raise ValueError("must not be empty or contain a null character")
    return given


def _tcp_address(address: str) -> str:
    host, _, port = address.rpartition(":")
    digits = port.isascii() and port.isdecimal() and len(port) <= len(str(MAX_PORT))
    if not (host and "/" not in host and digits and int(port) <= MAX_PORT):
        raise ValueError(f"must be host:port, with a port of 0 .. {MAX_PORT}")
    return address


def _address(address: str) -> str:
    if address.startswith("unix:"):
        return address
    try:
        return _tcp_address(address)
    except ValueError as error:
        raise ValueError(f"{error}, or unix:PATH") from error


def _blocks_url(url: str) -> str:
    if not re.fullmatch("file:///.+|s3://[^/?].*", url):
        raise ValueError("must be file:///PATH or s3://BUCKET/PREFIX")
    return url


def _engine_address(address: str) -> str:
    if not address.startswith("tls://"):
        raise ValueError("must be tls://host:port")
    _tcp_address(address.removeprefix("tls://"))
    return address


def _host(name: str) -> str:
    if not _HOST.fullmatch(name):
        raise ValueError("must be host names or addresses in lower case, without port")
    return name


def _origin(origin: str) -> str:
    scheme, _, host = origin.partition("://")
    if scheme not in {"http", "https"} or not _HOST.fullmatch(re.sub(r":\d+$", "", host)):
        raise ValueError("must be such as https://page.example:8443, without / at the end")
    if origin.endswith({"https": ":443", "http": ":80"}[scheme]):
        raise ValueError("must be without the scheme's own port, which browsers leave out")
    return origin


def _network(text: str) -> str:
    try:
        [network] = networks([text])
    except ValueError as error:
        raise ValueError("must be networks such as 192.0.2.0/24, not addresses in one") from error
    if not network.prefixlen:
        raise ValueError("must not be all addresses, of which any could name another")
    return text


FilePath = Annotated[Path, BeforeValidator(_file_name)]
TcpAddress = Annotated[str, AfterValidator(_tcp_address)]
Host = Annotated[str, AfterValidator(_host)]
Origin = Annotated[str, AfterValidator(_origin)]
Network = Annotated[str, AfterValidator(_network)]
Processes = Annotated[int, Field(ge=0, le=MAX_PROCESSES)]
"""Number of worker processes; 0 means one per core."""
Role = Literal["all", "front-end", "coordinator", "worker", "relay"]
"""A process's share of its party: everything, or one role among several processes; or, of a
shuffler, the second one of tasks with two."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ServiceSettings:
    """Settings of every service. Paths are relative to the working directory."""

    state_directory: FilePath
    listen: Annotated[str, AfterValidator(_address)] = "127.0.0.1:0"
    """host:port, or unix:PATH. Port 0 chooses a free one and writes it to STATE/address."""
    log_level: Level = "INFO"
    tls_directory: FilePath | None = None
    """Directory of a development authority and this process's certificate, created if missing."""
    tls_certificate: FilePath | None = None
    tls_key: FilePath | None = None
    tls_authority: FilePath | None = None
    """PEM files from your own authority, instead of tls_directory."""
    plaintext: bool = False
    """Disable TLS. Refused unless `listen` is on loopback or a Unix socket."""
    metrics_listen: TcpAddress | None = None
    """host:port on a private network to serve Prometheus metrics over HTTP; by default none. Port 0
    chooses a free one and writes it to STATE/metrics_address."""

    def __post_init__(self) -> None:
        files = (self.tls_certificate, self.tls_key, self.tls_authority)
        on_socket = self.listen.startswith("unix:")
        ways = [self.tls_directory is not None, any(files), self.plaintext]
        if sum(ways) != 1 and not (on_socket and sum(ways) == 0):
            raise SettingsError(
                "protect calls in exactly one way: tls_directory, or tls_certificate with tls_key "
                "and tls_authority, or plaintext = true"
            )
        only_calls = on_socket and files[:2] == (None, None)
        if any(files) and not all(files) and not only_calls:
            raise SettingsError(
                "tls_certificate, tls_key and tls_authority go together, unless listen is a Unix "
                "socket: then tls_authority alone is enough to call others"
            )
        if self.plaintext and not is_local(self.listen):
            raise SettingsError("plaintext is allowed on loopback only")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class KeyHolderSettings(ServiceSettings):
    """Settings of a party that keeps private keys."""

    state_key: FilePath | None = None
    """File of the 32-byte key that encrypts the secrets in state_directory; created on first start.
    By default, the directory's path with .key appended."""
    key_lifetime_days: float = 90.0
    """Days for which an encryption key is used for new tasks; 0 means no limit."""
    key_overlap_days: float = 2.0
    """Days for which the next key is published before it is used."""
    key_keep_days: Annotated[float, Field(ge=1, le=MAX_DAYS)] = 30.0
    """Minimum days for which an expired key still opens; longer while a task needs it."""
    reflection: bool = False
    """Enable gRPC reflection for all clients."""
    role: Role = "all"
    """This process's share of the party's work."""
    coordinator: TcpAddress | None = None
    """host:port of the coordinator's internal listener, for the other roles."""
    coordinator_listen: TcpAddress | None = None
    """host:port on a private network where the coordinator serves the other roles."""
    internal_tls_directory: FilePath | None = None
    """Directory with the certificate of this process's role and of the party's own authority, which
    issues no other certificates. Anyone who holds one can ask the coordinator for keys."""
    blocks: Annotated[str, AfterValidator(_blocks_url)] | None = field(default=None, repr=False)
    """file:///FOLDER or s3://BUCKET/PREFIX for the blocks of batches, shared by the processes of
    this party alone; None for STATE/blocks."""
    executor: Annotated[str, AfterValidator(_engine_address)] | None = None
    """tls://host:port of the scheduler of a Dask engine that runs the coordinator's parts of
    batches; None for worker processes of this machine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        lifetime, overlap = self.key_lifetime_days, self.key_overlap_days
        if not (lifetime == 0 or 1 <= lifetime <= MAX_DAYS):
            raise SettingsError(
                f"key_lifetime_days is {lifetime}; it must be 1 .. {MAX_DAYS}, or 0 for no limit"
            )
        if not 0 <= overlap <= MAX_DAYS or (lifetime and overlap > lifetime):
            raise SettingsError(
                f"key_overlap_days is {overlap}; it must be 0 .. key_lifetime_days, {lifetime}"
            )
        self._check_role()

    def _check_role(self) -> None:
        role = self.role
        if role == "relay":  # its engine's workers fetch their jobs from it
            role = "all" if self.executor is None else "coordinator"
        own = {"coordinator": {"coordinator_listen"}, "all": set[str]()}
        needed = own.get(role, {"coordinator"})
        if role != "all":
            needed.add("internal_tls_directory")
        for name in ("coordinator", "coordinator_listen", "internal_tls_directory"):
            given = getattr(self, name) is not None
            if given and name not in needed:
                raise SettingsError(f"{name} has no use in the role {self.role}")
            if not given and name in needed:
                raise SettingsError(f"the role {self.role} needs {name}")
        if self.executor is not None and role != "coordinator":
            raise SettingsError(f"executor has no use in the role {self.role}")
        if self.blocks is None and (self.executor is not None or self.role == "worker"):
            raise SettingsError("an executor and its workers need blocks")

    def blocks_url(self) -> str:
        """Return the URL of the blocks, by default of STATE/blocks."""
        return self.blocks or (self.state_directory / "blocks").absolute().as_uri()

    def schedule(self) -> Schedule:
        """Return the key schedule in seconds; a lifetime of 0 days becomes infinite."""
        return Schedule(
            lifetime=self.key_lifetime_days * DAY or math.inf,
            overlap=self.key_overlap_days * DAY,
            retention=self.key_keep_days * DAY,
        )


@dataclass(frozen=True, kw_only=True, config=STRICT)
class HttpSettings(ServiceSettings):
    """Settings of a service that devices may call over HTTP too."""

    http_listen: TcpAddress | None = None
    """host:port to serve devices over HTTP; by default none. Port 0 chooses a free one and writes
    it to STATE/http_address."""
    http_plain: bool = False
    """Disable TLS over HTTP. Refused unless `http_listen` is on loopback, or there are
    `http_proxies`."""
    http_certificate: FilePath | None = None
    http_key: FilePath | None = None
    """PEM files for HTTP, by default the service's own; browsers must trust them."""
    http_hosts: tuple[Host, ...] = ()
    """Names by which HTTP clients call this server, without ports; by default the host of
    `http_listen`, and all names of loopback there."""
    http_origins: tuple[Origin, ...] = ()
    """Origins of web pages that may call, such as https://page.example:8443; by default none."""
    http_proxies: tuple[Network, ...] = ()
    """Networks of trusted proxies, which forward the client's address in X-Forwarded-For."""
    relays: tuple[Network, ...] = ()
    """Networks of relays. Their calls, over gRPC or HTTP, have no common share by address."""

    def __post_init__(self) -> None:
        super().__post_init__()
        pair = (self.http_certificate, self.http_key)
        if self.http_listen is None:
            if self.http_plain or any(pair) or self.http_hosts or self.http_origins:
                raise SettingsError("settings of HTTP have no use without http_listen")
            return
        if any(pair) and (not all(pair) or self.http_plain):
            raise SettingsError("http_certificate and http_key go together, and without http_plain")
        if self.http_plain and not (is_local(self.http_listen) or self.http_proxies):
            raise SettingsError("http_plain is allowed on loopback only, or behind http_proxies")
        own = self.tls_directory or self.tls_certificate
        if not (self.http_plain or own or any(pair)):
            raise SettingsError("http_listen needs http_certificate with http_key, or http_plain")
        self.accepted_hosts()

    def accepted_hosts(self) -> frozenset[str]:
        """Return the names by which requests may call this server."""
        return host_names(str(self.http_listen), self.http_hosts, "http_")


def host_names(listen: str, hosts: Collection[str], prefix: str = "") -> frozenset[str]:
    """
    Return the names by which requests may call a server: `hosts`, or else that of `listen`.

    `prefix` is that of both settings. Raises SettingsError if `listen` has no name.
    """
    if not hosts and listen.startswith(_ALL_ADDRESSES):
        raise SettingsError(f"{prefix}listen on all addresses needs {prefix}hosts")
    host = listen.rpartition(":")[0].lower()
    return frozenset(hosts or (host, *(_LOOPBACK_NAMES if is_local(listen) else ())))


def load(
    settings: type[S],
    path: Path | None,
    environment: Mapping[str, str],
    prefix: str,
    *,
    leave_out_unknown: bool = False,
) -> S:
    """
    Read a party's settings from a flat TOML file, if there is one, and from the environment.

    A variable PREFIX_KEY, such as SHUFFLEDP_SHUFFLER_LISTEN, overrides the file's key.
    With `leave_out_unknown`, unknown keys are ignored.

    Raises:
        SettingsError: The file is unreadable; or a key is unknown, missing, of the wrong type, or
            breaks a rule. The message names the key, and no ill-typed value: it may be a secret.
    """
    kinds = get_type_hints(settings, include_extras=True)
    found = {} if path is None else read_toml(path, SettingsError, max_bytes=MAX_SETTINGS_BYTES)
    start, sources = f"{prefix}_", [str(path)] * (path is not None)
    if any(variable.startswith(start) for variable in environment):
        sources.append("the environment")
    for variable, text in environment.items():
        key = variable.removeprefix(start).lower()
        if variable.startswith(start):
            found[key] = from_text(key, text, kinds[key], SettingsError) if key in kinds else text
    if leave_out_unknown:
        found = {key: value for key, value in found.items() if key in kinds}
    try:
        return validated(settings, found, SettingsError, "setting", " and ".join(sources))
    except SettingsError as error:
        if path is None and str(error).startswith("missing"):
            raise SettingsError(f"{error} (no --settings given)") from None
        raise
