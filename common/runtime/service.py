"""Start a service, run it, and stop it gracefully."""

import argparse
import asyncio
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from common.errors import ShuffleDpError
from common.runtime import logs
from common.runtime.access import OperatorToken, asks_for_certificates, connections_of
from common.runtime.admission_interceptor import AdmissionInterceptor
from common.runtime.clock import Clock
from common.runtime.core_dumps import forbid_core_dumps
from common.runtime.metrics import MetricsServer, ProcessMetrics
from common.runtime.rpc import bind, make_server
from common.runtime.settings import KeyHolderSettings, ServiceSettings, load
from common.runtime.state_directory import StateDirectory
from common.runtime.tls import Tls, VerifiedCallers, internal_identity

S = TypeVar("S", bound=ServiceSettings)

_GRPC_LOG_VARIABLES: Final = frozenset({"GRPC_TRACE", "GRPC_VERBOSITY"})
GRPC_SILENCE: Final = {"GRPC_VERBOSITY": "NONE"}
"""Environment variables that suppress gRPC's logs, such as those of failed handshakes."""
_GRACE: Final = 10.0
"""Seconds that calls in flight have to finish when the service stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A running gRPC server with health checks, metrics if enabled, and background tasks."""

    server: grpc.aio.Server
    address: str
    checks: health.HealthServicer
    metrics: MetricsServer | None = None
    background: Sequence[asyncio.Task[None]] = ()

    @staticmethod
    async def start(
        settings: ServiceSettings,
        tls: Tls | None,
        name: str,
        add_services: Callable[[grpc.aio.Server], None],
        process_metrics: ProcessMetrics,
        *,
        operator_token: OperatorToken | None = None,
        background: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> "Listener":
        """
        Bind, serve, publish the address, report healthy, and start the `background` coroutines.

        Afterwards no file of the state directory may be missing.

        Raises SettingsError if the server or the metrics cannot listen on their address.
        """
        metrics = _serve_metrics(settings, tls, process_metrics)
        try:
            listener = await _serve(
                settings, tls, name, add_services, process_metrics, operator_token=operator_token
            )
        except BaseException:
            if metrics is not None:
                await asyncio.to_thread(metrics.stop)
            raise
        tasks = [asyncio.create_task(run()) for run in background]
        StateDirectory.open(settings.state_directory).started()
        return replace(listener, metrics=metrics, background=tasks)

    @staticmethod
    async def start_internal(
        settings: KeyHolderSettings,
        clock: Clock,
        name: str,
        add_services: Callable[[grpc.aio.Server], None],
        process_metrics: ProcessMetrics,
    ) -> "Listener | None":
        """
        Serve the other processes of this party at `coordinator_listen`, if the settings name it.

        Raises SettingsError if a certificate is unusable, or the address taken.
        """
        if settings.internal_tls_directory is None:
            return None
        tls = internal_identity(settings.internal_tls_directory, "coordinator", clock)
        process_metrics.watch_certificates(tls.files, internal=True)
        return await _serve(settings, tls, name, add_services, process_metrics, internal=True)

    async def stop(self) -> None:
        """Report unhealthy, refuse new calls, end running ones within _GRACE seconds, and stop."""
        await self.checks.enter_graceful_shutdown()
        await self.server.stop(_GRACE)
        for task in self.background:
            task.cancel()
        await asyncio.gather(*self.background, return_exceptions=True)
        if self.metrics is not None:
            await asyncio.to_thread(self.metrics.stop)


async def _serve(
    settings: ServiceSettings,
    tls: Tls | None,
    name: str,
    add_services: Callable[[grpc.aio.Server], None],
    process_metrics: ProcessMetrics,
    *,
    operator_token: OperatorToken | None = None,
    internal: bool = False,
) -> Listener:
    """Bind, serve, publish the address and report healthy, at `coordinator_listen` if internal."""
    party = settings if isinstance(settings, KeyHolderSettings) else None
    listen = str(party.coordinator_listen) if party and internal else settings.listen
    ask = tls is not None and asks_for_certificates(name)
    certified = tls if ask and not listen.startswith("unix:") else None
    admission = AdmissionInterceptor(
        callers=VerifiedCallers(certified) if certified else None,
        token=operator_token,
        on_error=process_metrics.note_failure,
    )
    server = make_server(admission, connections_of(name))
    add_services(server)
    checks = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    if party and party.reflection and not internal:
        reflection.enable_server_reflection((name, HEALTH, reflection.SERVICE_NAME), server)
    address = bind(server, listen, tls, ask_for_certificates=ask)
    await server.start()
    for service in ("", name):
        await checks.set(service, health_pb2.HealthCheckResponse.SERVING)
    file = "coordinator_address" if internal else "address"
    StateDirectory.open(settings.state_directory).publish(file, address)
    logs.event("serving", {"party": name, "address": address})
    return Listener(server=server, address=address, checks=checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A started service."""

    listener: Listener
    internal: Listener | None = None
    """Serves the party's other processes, if this one is its coordinator."""
    closing: tuple[Callable[[], object], ...] = ()
    """Functions that stop other work and close files, called in this order."""

    @property
    def address(self) -> str:
        """The listening address."""
        return self.listener.address

    async def stop(self) -> None:
        """Finish calls in flight, stop background tasks, and close every file; log failures."""
        internal = () if self.internal is None else (self.internal.stop,)
        for close in (*internal, self.listener.stop, *self.closing):
            try:
                ending = close()
                if isinstance(ending, Awaitable):
                    await ending
            except Exception as error:  # noqa: BLE001  # what is left must be closed too
                logs.event("not closed", logs.error_fields(error), level="ERROR")


def _serve_metrics(
    settings: ServiceSettings, tls: Tls | None, process_metrics: ProcessMetrics
) -> MetricsServer | None:
    if settings.metrics_listen is None:
        return None
    if tls is not None:
        process_metrics.watch_certificates(tls.files)
    process_metrics.watch_disks(*_directories(settings))
    process_metrics.watch_loop(asyncio.get_running_loop())
    server = MetricsServer(settings.metrics_listen, process_metrics.metrics)
    StateDirectory.open(settings.state_directory).publish("metrics_address", server.address)
    return server


def _directories(settings: ServiceSettings) -> list[Path]:
    found = [settings.state_directory]
    if isinstance(settings, KeyHolderSettings) and settings.blocks is not None:
        url = urlsplit(settings.blocks)
        found += [Path(unquote(url.path))] if url.scheme == "file" else []
    return found


def main(party: str, settings_class: type[S], start: Callable[[S], Awaitable[Service]]) -> None:
    """Run a service until SIGTERM or SIGINT, or exit with an error. Called by each __main__.py."""
    prefix = f"SHUFFLEDP_{party.upper()}"
    parser = argparse.ArgumentParser(
        prog=f"python -m {party}",
        description=f"Run the {party.replace('_', ' ')}.",
        epilog=f"Example: python -m {party} --settings {party}.toml. "
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


async def _run(settings: S, start: Callable[[S], Awaitable[Service]]) -> None:
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
