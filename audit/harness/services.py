"""The real services in this process, on loopback."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import grpc

import analyzer.server
import issuer.server
import shuffler.server
import user_agent.server
from analyzer.settings import AnalyzerSettings
from common.errors import SettingsError
from common.runtime.rpc import open_channel
from common.runtime.service import Service
from common.runtime.state_directory import StateDirectory
from common.runtime.validation import validated
from deploy.clients.local_parties import LOOPBACK, LocalParties
from issuer.settings import IssuerSettings
from shuffler.settings import ShufflerSettings
from user_agent.settings import UserAgentSettings

_STARTS: Final[Mapping[str, tuple[Any, Callable[..., Awaitable[Service]], dict[str, Any]]]] = {
    "analyzer": (AnalyzerSettings, analyzer.server.start, {"opening_processes": 1}),
    "shuffler": (
        ShufflerSettings,
        shuffler.server.start,
        {"opening_processes": 1, "key_lifetime_days": 0},  # a task may end in any year
    ),
    "relay": (
        ShufflerSettings,
        shuffler.server.start,
        {"opening_processes": 1, "key_lifetime_days": 36_500},
    ),
    "issuer": (IssuerSettings, issuer.server.start, {}),
    "user_agent": (UserAgentSettings, user_agent.server.start, {}),
}
"""Each party's type of settings, the function that takes them, and settings for this process."""


class Services(LocalParties[Service]):
    """The parties in this process; by default without witnesses of the log."""

    shuffler_ports: Mapping[str, Any] = MappingProxyType({})
    """Arguments of the shuffler's start besides its settings."""

    async def _start(self, party: str, **settings: Any) -> Service:  # noqa: ANN401
        kind, start, own = _STARTS[party]
        settings = self._settings(party) | own | settings
        ports = self.shuffler_ports if party == "shuffler" else {}
        return await start(validated(kind, settings, SettingsError, "setting"), **ports)

    def _settings(self, party: str) -> dict[str, Any]:
        return {
            "state_directory": self.directory / party,
            "listen": LOOPBACK,
            "tls_directory": self.directory / "tls",
        }

    def channel(self, party: str, address: str) -> grpc.aio.Channel:
        """Open a channel to a service, without a certificate, as devices do."""
        return open_channel(address, party, self.authority.read_bytes())


def secrets_of(state: Path, pattern: str) -> dict[str, bytes]:
    """Decrypt a party's sealed files by name."""
    directory = StateDirectory.open(state)
    return {name: directory.secret(name, bytes) for name in directory.names(pattern)}


def files_of(state: Path) -> dict[str, bytes]:
    """Read a party's files by path, skipping files that vanish meanwhile."""
    found = {}
    for path in sorted(state.rglob("*")):
        if path.is_file():
            with suppress(FileNotFoundError):
                found[str(path.relative_to(state))] = path.read_bytes()
    return found
