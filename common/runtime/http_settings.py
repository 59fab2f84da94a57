"""Settings of a service that devices may call over HTTP too."""

import re
from collections.abc import Collection
from typing import Annotated, Final

from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.access import is_local
from shuffledp.common.runtime.peer import networks
from shuffledp.common.runtime.settings import FilePath, ServiceSettings, TcpAddress
from shuffledp.common.runtime.validation import STRICT

_HOST: Final = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_ALL_ADDRESSES: Final = ("0.0.0.0:", "[::]:")


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


Host = Annotated[str, AfterValidator(_host)]
Origin = Annotated[str, AfterValidator(_origin)]
Network = Annotated[str, AfterValidator(_network)]


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
