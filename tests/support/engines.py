"""A Dask engine on loopback, whose processes can be killed."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import psutil

from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.runtime.blocks import FolderBlocks
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.metrics import ProcessMetrics
from shuffledp.common.runtime.parts.dask_engine import EngineExecutor, RemotePart
from shuffledp.common.runtime.parts.executor import PartMetrics
from shuffledp.common.runtime.parts.jobs import OfferedJobs
from shuffledp.common.runtime.service import GRPC_SILENCE
from shuffledp.common.runtime.tls import Tls, TlsFiles, development_files
from shuffledp.common.task.task import SUBMISSION_ID_BYTES
from shuffledp.shuffler.metrics import METRICS
from shuffledp.shuffler.shuffle_job import ShuffleJob
from shuffledp.shuffler.storage.group import Arrival, form_group
from shuffledp.shuffler.storage.sqlite_store import SqliteStore
from tests.support.coordinators import coordinator
from tests.support.tasks import PublishedTask

_SHIPPED: Final = Path(__file__).parents[2] / "deploy" / "docker" / "scale" / "dask.yaml"
_STARTED: Final = 60.0
"""Seconds in which a scheduler listens."""


def free_port() -> int:
    """Return a TCP port that is free now."""
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
        self._port = free_port()
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

    def settings(
        self, coordinator: str, state: Path, blocks: Path, party: str = "shuffler"
    ) -> dict[str, str]:
        """Return the variables of a party's workers; a shuffler's read its SQLite database."""
        settings = {
            "role": "worker",
            "coordinator": coordinator,
            "internal_tls_directory": str(self.certificates),
            "blocks": blocks.as_uri(),
            "state_directory": str(state),
            "plaintext": "true",
        }
        if party == "shuffler":
            settings |= {"analyzer": "127.0.0.1:1", "analyzer_identity": "ab" * 32}
        return {f"SHUFFLEDP_{party.upper()}_{name.upper()}": settings[name] for name in settings}

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

    def start_workers(self, count: int = 2) -> None:
        """Start workers with one thread each, which their nannies replace if they die."""
        self._workers += [self._start_worker() for _ in range(count)]

    def _start_worker(self) -> subprocess.Popen[bytes]:
        return self._start(
            "worker", "worker", self.address, "--nthreads", "1", "--no-dashboard",
            "--local-directory", str(self._folder),
        )  # fmt: skip

    def restart_worker(self, number: int) -> None:
        """Kill one worker, and start another in its place."""
        _kill(self._workers[number])
        self._workers[number] = self._start_worker()

    def worker_processes(self) -> set[int]:
        """Return the ids of the processes that nannies started."""
        nannies = [psutil.Process(worker.pid) for worker in self._workers]
        return {child.pid for nanny in nannies for child in nanny.children(recursive=True)}

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
                env={
                    **os.environ,
                    **GRPC_SILENCE,
                    "DASK_CONFIG": str(_SHIPPED),
                    **self._environment,
                },
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
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@dataclass(frozen=True, kw_only=True)
class EngineParty:
    """A shuffler's coordinator and its engine."""

    folder: Path
    engine: Engine
    metrics: ProcessMetrics
    executor: EngineExecutor


@asynccontextmanager
async def engine_party(
    folder: Path,
    remote: RemotePart,
    environment: Mapping[str, str],
    patience: float = 60,
    party: str = "shuffler",
) -> AsyncIterator[EngineParty]:
    """Run a coordinator with an engine of two workers; blocks are in FOLDER/engine."""
    jobs, variables = OfferedJobs(), dict(environment)
    engine = Engine(folder, variables)
    metrics = ProcessMetrics("shuffler", METRICS, SystemClock())
    tls = Tls.open(engine.files("coordinator"), "coordinator", SystemClock())
    async with coordinator(tls, jobs) as address:
        variables |= engine.settings(address, folder, folder / "engine", party)
        await engine.start_scheduler()
        engine.start_workers()
        executor = EngineExecutor(
            engine.address,
            tls=engine.files("coordinator"),
            remote=remote,
            jobs=jobs,
            metrics=PartMetrics(metrics.metrics, SystemClock()),
            patience=patience,
        )
        try:
            yield EngineParty(folder=folder, engine=engine, metrics=metrics, executor=executor)
        finally:
            await executor.close()
            engine.stop()


BATCH_KEY: Final = BatchKey(bytes(32))


async def stored_job(folder: Path, case: PublishedTask, n_users: int, per_group: int) -> ShuffleJob:
    """Store a batch of random reports; return its job, with blocks in FOLDER/pool."""
    batch_id, rng = BatchId(bytes(range(16))), np.random.default_rng(1)
    store = SqliteStore(folder / "spool.sqlite", SystemClock())
    await store.open_batch(batch_id, case.signed)
    size = SUBMISSION_ID_BYTES + case.task.lengths[-1] * case.task.sealed_report_bytes
    for _ in range(0, n_users, per_group):
        submissions = [rng.bytes(size) for _ in range(per_group)]
        groups = [form_group(submissions, BATCH_KEY.private_bytes())[0]]
        await store.append(Arrival(batch_id=batch_id, key=BATCH_KEY, groups=groups, deadline=2**40))
    store.close()
    return ShuffleJob.plan(
        batch_id=batch_id,
        task_bytes=case.signed.task_bytes,
        n_users=n_users,
        key=BATCH_KEY,
        seed=bytes(range(32)),
        source=store.group_source(),
        blocks=FolderBlocks(folder / "pool"),
    )
