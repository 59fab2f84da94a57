"""A Dask engine on loopback, whose processes can be killed."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

from common.runtime.access import connections_of
from common.runtime.admission_interceptor import AdmissionInterceptor
from common.runtime.clock import SystemClock
from common.runtime.jobs import OfferedJobs, serve_jobs
from common.runtime.rpc import bind, make_server
from common.runtime.service import GRPC_SILENCE
from common.runtime.tls import Tls, TlsFiles, development_files

_STARTED: Final = 60.0
"""Seconds in which a scheduler listens."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Engine:
    """A scheduler and workers, whose certificates are from an authority of their own."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Prepare an engine whose workers get more variables in their environment."""
        self.certificates = folder / "internal"
        self._folder = folder
        self._environment = environment
        self._port = _free_port()
        self._scheduler: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        for role in ("coordinator", "worker"):
            development_files(self.certificates, role, SystemClock())

    @property
    def address(self) -> str:
        """The scheduler's address."""
        return f"tls://127.0.0.1:{self._port}"

    def files(self, role: str) -> TlsFiles:
        """Return the certificate of a role."""
        return TlsFiles.within(self.certificates, role)

    async def start_scheduler(self) -> None:
        """Start a scheduler at the engine's address, and wait until it listens."""
        self._scheduler = self._start(
            "scheduler", "coordinator", "--host", "127.0.0.1", "--port", str(self._port),
            "--protocol", "tls", "--no-dashboard", "--no-show",
        )  # fmt: skip
        async with asyncio.timeout(_STARTED):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    return

    def start_worker(self) -> None:
        """Start a worker with one thread, which its nanny replaces if it dies."""
        self._workers.append(
            self._start(
                "worker", "worker", self.address, "--nthreads", "1", "--no-dashboard",
                "--local-directory", str(self._folder),
            )
        )  # fmt: skip

    def kill(self, what: Literal["scheduler", "workers"]) -> None:
        """Kill all workers or, first, also the scheduler, without which they would end."""
        if what == "scheduler" and self._scheduler is not None:
            _kill(self._scheduler)
        for worker in self._workers:
            _kill(worker)
        self._workers = []

    def _start(self, program: str, role: str, *options: str) -> subprocess.Popen[bytes]:
        files = self.files(role)
        command = [
            *(sys.executable, "-m", "distributed.cli.dask_" + program, *options),
            *("--tls-ca-file", str(files.authority)),
            *("--tls-cert", str(files.certificate), "--tls-key", str(files.key)),
        ]
        log = (self._folder / f"{program}.log").open("ab")
        with log:
            return subprocess.Popen(
                command,
                env={**os.environ, **GRPC_SILENCE, **self._environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Kill everything."""
        for process in [*self._workers, *filter(None, [self._scheduler])]:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children, which are in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


@asynccontextmanager
async def coordinator(files: TlsFiles, jobs: OfferedJobs) -> AsyncIterator[str]:
    """Serve jobs like a coordinator; yield the address."""
    tls = Tls.open(files, "coordinator", SystemClock())
    admission = AdmissionInterceptor(certificates=True, token=None, on_error=lambda _: None)
    server = make_server(admission, connections_of("shuffledp.v1.Jobs"))
    serve_jobs(server, jobs)
    address = bind(server, "127.0.0.1:0", tls, ask_for_certificates=True)
    await server.start()
    try:
        yield address
    finally:
        await server.stop(0)
