"""Start a service, run it, and stop it gracefully."""

import argparse
import asyncio
import os
import resource
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar
from urllib.parse import unquote, urlsplit

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from shuffledp.common.crypto.secret import forbid_core_dumps
from shuffledp.common.errors import ShuffleDpError
from shuffledp.common.runtime import access, logs, peer, rpc
from shuffledp.common.runtime.admission import Admission
from shuffledp.common.runtime.admission_interceptor import AdmissionInterceptor
from shuffledp.common.runtime.clock import ComparedClock, SystemClock, cancel_all  # noqa: TID251  # an argument
from shuffledp.common.runtime.confirmed_clock import LONGEST_STOP, ConfirmedClock
from shuffledp.common.runtime.metrics import MetricRow, MetricsServer, Party, ProcessMetrics
from shuffledp.common.runtime.settings import HttpSettings, KeyHolderSettings, ServiceSettings, load
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.tls import Tls, TlsFiles, VerifiedCallers, identity_for, internal_tls


class Closable(Protocol):
    """A part of a service that must be closed."""

    def close(self) -> object:
        """Close it, at once or as a coroutine."""


class Running(Protocol):
    """A party that serves at an address until it is stopped."""

    @property
    def address(self) -> str:
        """The listening address."""

    async def stop(self) -> None:
        """Finish what is under way, and close every file."""


AddServices = Callable[[grpc.aio.Server], None]
"""Adds a service to a server, as generated functions do."""
IsServing = Callable[[], Awaitable[bool]]
ServeHttp = Callable[
    [HttpSettings, TlsFiles | None, Iterable[AddServices], Admission, IsServing], Running
]
"""Serves devices over HTTP; see `http_edge.serve_http`."""
C = TypeVar("C", bound=Closable)
S = TypeVar("S", bound=ServiceSettings)

_GRPC_LOG_VARIABLES: Final = frozenset({"GRPC_TRACE", "GRPC_VERBOSITY"})
GRPC_SILENCE: Final = {"GRPC_VERBOSITY": "NONE"}
"""Environment variables that suppress gRPC's logs, such as those of failed handshakes."""
GRACE: Final = 10.0
"""Seconds that calls in flight have to finish when the service stops."""


@dataclass(kw_only=True)
class Service:
    """A service's process: its clock, certificate and metrics, and all that it has opened."""

    settings: ServiceSettings
    clock: ComparedClock
    tls: Tls | None
    metrics: ProcessMetrics
    address: str = ""
    """The listening address, once it serves."""
    checks: health.HealthServicer = field(default_factory=health.HealthServicer)
    """Answers health checks."""
    background: list[Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=list)
    """Coroutine functions that run while it serves; complete before `serve`."""
    internal: list[AddServices] = field(default_factory=list)
    """Functions that add the services for this party's other processes."""
    closing: list[Callable[[], object]] = field(default_factory=list)
    """Functions that stop work and close files; called in reverse order."""

    @classmethod
    @asynccontextmanager
    async def starting(
        cls,
        settings: ServiceSettings,
        party: Party,
        definitions: Iterable[MetricRow],
        machine: SystemClock,
        state: StateDirectory | None = None,
        *,
        certificate: str = "",
        longest_stop: float = LONGEST_STOP,
    ) -> AsyncGenerator[Self]:
        """
        Yield a service that opens its parts and serves; if that fails, close what was opened.

        Its clock is a ConfirmedClock with `longest_stop` if it has a state directory, else the
        machine's. `certificate` is the name in its TLS certificate, by default the party's.

        Raises the errors of `ConfirmedClock` and `identity_for`.
        """
        confirmed = None if state is None else ConfirmedClock(state, machine, longest_stop)
        clock = confirmed or machine
        service = cls(
            settings=settings,
            clock=clock,
            tls=identity_for(settings, certificate or party, clock),
            metrics=ProcessMetrics(party, definitions, machine),
        )
        if confirmed is not None:
            service.background.append(confirmed.run)
            service.closing.append(confirmed.close)
        try:
            yield service
        except BaseException:
            await service.stop()
            raise

    def opened(self, part: C) -> C:
        """Return a part, to be closed when the service stops."""
        self.closing.append(part.close)
        return part

    async def serve(
        self,
        name: str,
        *services: AddServices,
        operator_token: access.OperatorToken | None = None,
        http: ServeHttp | None = None,
    ) -> None:
        """
        Bind, serve, publish the address, report healthy, and start the background work.

        `http` serves devices over HTTP too, if the settings say where.

        This uses up the confirmation of a restore, if there is one.

        Raises SettingsError if a server cannot listen on its address, or a certificate is unusable.
        """
        settings = self.settings if isinstance(self.settings, HttpSettings) else None
        self._serve_metrics()
        running = list[asyncio.Task[None]]()
        self.closing.append(partial(cancel_all, running))
        admission = Admission(
            token=operator_token,
            on_error=self.metrics.note_failure,
            relays=peer.networks(settings.relays if settings else ()),
        )
        begun = len(self.closing)
        if http and settings and settings.http_listen:
            files = self._http_files(settings)
            server = http(settings, files, services, admission, self.is_serving)
            self.closing.append(server.stop)
            StateDirectory.open(settings.state_directory).publish("http_address", server.address)
            logs.event("serving over HTTP", {"party": name, "address": server.address})
        self.address = await self._listen(name, self.settings.listen, self.tls, services, admission)
        self.closing[begun:] = [partial(_together, self.closing[begun:])]
        running += [asyncio.create_task(run()) for run in self.background]
        StateDirectory.open(self.settings.state_directory).started()

    def _http_files(self, settings: HttpSettings) -> TlsFiles | None:
        """Return the TLS files for HTTP, and check and watch a pair of its own."""
        if settings.http_plain or settings.http_certificate is None:
            return self.tls.files if self.tls and not settings.http_plain else None
        own = TlsFiles(certificate=settings.http_certificate, key=settings.http_key)
        own.check("", self.clock.now())
        self.metrics.watch_certificates(own, "http ")
        return own

    async def serve_internal(self, name: str) -> None:
        """
        Serve the other processes of this party at `coordinator_listen`, if the settings name it.

        Raises SettingsError if a certificate is unusable, or the address taken.
        """
        settings = self.settings
        if not isinstance(settings, KeyHolderSettings) or settings.internal_tls_directory is None:
            return
        tls = internal_tls(settings.internal_tls_directory, "coordinator", self.clock)
        self.metrics.watch_certificates(tls.files, "internal ")
        address = str(settings.coordinator_listen)
        admission = Admission(on_error=self.metrics.note_failure)
        await self._listen(name, address, tls, self.internal, admission, internal=True)

    async def _listen(
        self,
        name: str,
        listen: str,
        tls: Tls | None,
        services: Iterable[AddServices],
        admission: Admission,
        *,
        internal: bool = False,
    ) -> str:
        """Bind, serve, publish the address, report healthy, and return the address."""
        ask = tls is not None and access.asks_for_certificates(name)
        callers = VerifiedCallers(tls) if tls and ask and not listen.startswith("unix:") else None
        interceptor = AdmissionInterceptor(admission, callers)
        server = rpc.make_server(interceptor, access.connections_of(name))
        for add in services:
            add(server)
        checks = health.HealthServicer() if internal else self.checks
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        reflect = isinstance(self.settings, KeyHolderSettings) and self.settings.reflection
        if reflect and not internal:
            reflection.enable_server_reflection((name, HEALTH, reflection.SERVICE_NAME), server)
        address = rpc.bind(server, listen, tls, ask_for_certificates=ask)
        await server.start()
        self.closing.append(partial(_stop, server, checks))
        for service in ("", name):
            await checks.set(service, health_pb2.HealthCheckResponse.SERVING)
        file = "coordinator_address" if internal else "address"
        StateDirectory.open(self.settings.state_directory).publish(file, address)
        logs.event("serving", {"party": name, "address": address})
        return address

    async def is_serving(self) -> bool:
        """Return whether the service is healthy."""
        answer = await self.checks.Check(health_pb2.HealthCheckRequest(), None)
        return answer is not None and answer.status == health_pb2.HealthCheckResponse.SERVING

    def _serve_metrics(self) -> None:
        settings = self.settings
        if settings.metrics_listen is None:
            return
        if self.tls is not None:
            self.metrics.watch_certificates(self.tls.files)
        self.metrics.watch_disks(*_directories(settings))
        self.metrics.watch_loop(asyncio.get_running_loop())
        server = MetricsServer(settings.metrics_listen, self.metrics.metrics)
        self.closing.append(partial(asyncio.to_thread, server.stop))
        StateDirectory.open(settings.state_directory).publish("metrics_address", server.address)

    async def stop(self) -> None:
        """Finish calls in flight, stop background tasks, and close every file; log failures."""
        while self.closing:
            try:
                ending = self.closing.pop()()
                if isinstance(ending, Awaitable):
                    await ending
            except Exception as error:  # noqa: BLE001  # what is left must be closed too
                logs.event("not closed", logs.error_fields(error), level="ERROR")


async def _stop(server: grpc.aio.Server, checks: health.HealthServicer) -> None:
    """Report unhealthy, refuse new calls, and end running ones within GRACE seconds."""
    await checks.enter_graceful_shutdown()
    await server.stop(GRACE)


async def _together(endings: Sequence[Callable[[], Any]]) -> None:
    """Stop several servers at once, within one period of grace."""
    await asyncio.gather(*(ending() for ending in endings))


def _directories(settings: ServiceSettings) -> list[Path]:
    found = [settings.state_directory]
    if isinstance(settings, KeyHolderSettings) and settings.blocks is not None:
        url = urlsplit(settings.blocks)
        found += [Path(unquote(url.path))] if url.scheme == "file" else []
    return found


def main(party: str, settings_class: type[S], start: Callable[[S], Awaitable[Running]]) -> None:
    """Run a service until SIGTERM or SIGINT, or exit with an error. Called by each __main__.py."""
    module = start.__module__.removesuffix(".server")
    name = " ".join(reversed(module.split(".")[1:])).replace("_", " ")
    prefix = f"SHUFFLEDP_{party.upper()}"
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=f"Run the {name}.",
        epilog=f"Example: python -m {module} --settings {party}.toml. "
        f"Every setting may also be given as {prefix}_NAME in the environment.",
    )
    parser.add_argument("--settings", type=Path, help="a TOML settings file")
    arguments = parser.parse_args()
    _silence_grpc(party)
    forbid_core_dumps()
    try:
        settings = load(settings_class, arguments.settings, os.environ, prefix)
        logs.configure(settings.log_level)
        _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))  # one file per connection
        asyncio.run(_run(settings, start))
    except ShuffleDpError as error:
        sys.exit(f"{party}: {error}")


def _silence_grpc(party: str) -> None:
    """
    Disable gRPC's own log, by restarting this program unless its environment does so already.

    The log names peers and, with tracing, contains headers and decrypted bytes. gRPC reads its
    environment variables when it is loaded, so only a restart can change them.
    """
    silent = {name: text for name, text in os.environ.items() if name not in _GRPC_LOG_VARIABLES}
    silent |= GRPC_SILENCE
    if silent == dict(os.environ):
        return
    given = sorted(_GRPC_LOG_VARIABLES & set(os.environ))
    if given:
        sys.stderr.write(f"{party}: {' and '.join(given)} ignored: gRPC's log would name peers\n")
        sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], silent)  # noqa: S606  # runs this program again


async def _run(settings: S, start: Callable[[S], Awaitable[Running]]) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    state = StateDirectory.open(settings.state_directory)
    if state.is_open_to_others():
        logs.event("others may write to the state directory: chmod 700", {}, level="WARNING")
    with state.held():
        service = await start(settings)
        await stopping.wait()
        await service.stop()
    logs.event("stopped", {"address": service.address})
