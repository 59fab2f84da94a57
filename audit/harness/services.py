"""The real services in this process, on loopback, and proxies that record every call to them."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Self

import grpc

import shuffledp.analyzer.server
import shuffledp.issuer.server
import shuffledp.shuffler.server
import shuffledp.user_agent.server
from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.rpc import bind, open_channel
from shuffledp.common.runtime.service import Service
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.tls import Tls, development_files
from shuffledp.common.runtime.validation import validated
from shuffledp.deploy.clients.local_parties import LOOPBACK, LocalParties
from shuffledp.issuer.settings import IssuerSettings
from shuffledp.shuffler.settings import ShufflerSettings
from shuffledp.user_agent.settings import UserAgentSettings

_STARTS: Final[Mapping[str, tuple[Any, Callable[..., Awaitable[Service]], dict[str, Any]]]] = {
    "analyzer": (AnalyzerSettings, shuffledp.analyzer.server.start, {"opening_processes": 1}),
    "shuffler": (
        ShufflerSettings,
        shuffledp.shuffler.server.start,
        {"opening_processes": 1, "key_lifetime_days": 0},  # a task may end in any year
    ),
    "relay": (
        ShufflerSettings,
        shuffledp.shuffler.server.start,
        {"opening_processes": 1, "key_lifetime_days": 36_500},
    ),
    "issuer": (IssuerSettings, shuffledp.issuer.server.start, {}),
    "user_agent": (UserAgentSettings, shuffledp.user_agent.server.start, {}),
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


_DEADLINE: Final = 60.0
"""Timeout of a call in seconds."""
GRPC_HEADERS: Final = ("user-agent", "grpc-accept-encoding")
"""Headers that gRPC itself sends with each call."""


@dataclass(slots=True, kw_only=True)
class RecordedCall:
    """One recorded call."""

    path: str
    """Path of the method, such as `/shuffledp.v1.Shuffler/Submit`."""
    headers: tuple[tuple[str, str | bytes], ...]
    begun: float
    """Start of the call, in seconds of the monotonic clock."""
    requests: list[bytes] = field(default_factory=list)
    answer: bytes | None = None
    """The service's answer; None if the call failed."""

    @property
    def method(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass
class RecordingProxy(grpc.GenericRpcHandler):
    """A proxy with the service's certificate; calls `on_delivery` when a delivery begins."""

    party: Literal["analyzer", "shuffler"] = "analyzer"
    on_delivery: Callable[[], None] = lambda: None
    address: str = ""
    calls: list[RecordedCall] = field(default_factory=list)

    async def start(self, tls: Path, target: str) -> Self:
        """Listen, and connect to the service. `tls`: directory of the development authority."""
        clock, to_analyzer = SystemClock(), self.party == "analyzer"
        caller = development_files(tls, "shuffler", clock).read()
        own = caller if to_analyzer else None
        self._channel = open_channel(target, self.party, caller.authority, own=own)
        no_limit = (("grpc.max_receive_message_length", -1),)
        self._server = grpc.aio.server(handlers=[self], options=no_limit)
        identity = Tls.open(development_files(tls, self.party, clock), self.party, clock)
        self.address = bind(self._server, "127.0.0.1:0", identity, ask_for_certificates=to_analyzer)
        await self._server.start()
        return self

    async def stop(self) -> None:
        """Close both ends."""
        await self._server.stop(None)
        await self._channel.close()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401  # a gRPC handler
        """Return the recording handler for every method."""
        path = str(handler_call_details.method)

        async def passed_on(requests: AsyncIterator[bytes], context: Any) -> bytes:  # noqa: ANN401  # a gRPC type
            headers = tuple(context.invocation_metadata() or ())
            recorded = RecordedCall(path=path, headers=headers, begun=time.monotonic())
            self.calls.append(recorded)
            onward: Any = self._channel.stream_unary(path)
            call = onward(
                self._messages(recorded, requests),
                timeout=_DEADLINE,
                metadata=tuple(header for header in headers if header[0] not in GRPC_HEADERS),
            )
            await context.send_initial_metadata(tuple(await call.initial_metadata()))
            try:
                answer: bytes = await call
            except grpc.aio.AioRpcError as error:
                trailer = tuple(error.trailing_metadata() or ())
                await context.abort(error.code(), error.details() or "", trailer)
            recorded.answer = answer
            return answer

        return grpc.stream_unary_rpc_method_handler(passed_on)

    async def _messages(
        self, recorded: RecordedCall, requests: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        async for request in requests:
            if recorded.method == "BeginDelivery":
                self.on_delivery()
            recorded.requests.append(request)
            yield request
