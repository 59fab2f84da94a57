"""
Run parts on an engine: Dask, whose workers may be on many machines.

Only the job's kind, the batch's folder, the stage and the part's number travel through the engine;
the data stays in sealed blocks, and a worker fetches the job with its keys from the coordinator.
The engine therefore holds no state: if its scheduler or a worker dies, lost parts are computed
again.

Anyone who connects to an engine can run code in it. So it requires certificates of an authority
that signs for this party's own processes alone.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.errors import EngineAwayError, PeerError, SettingsError, WireError
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.parts import executor
from shuffledp.common.runtime.parts.jobs import OfferedJobs
from shuffledp.common.runtime.service import Service
from shuffledp.common.runtime.settings import KeyHolderSettings
from shuffledp.common.runtime.tls import TlsFiles
from shuffledp.protos.shuffledp.v1 import jobs_pb2_grpc

if TYPE_CHECKING:
    from distributed import Client, Future

J = TypeVar("J", bound=executor.Job)
T = TypeVar("T")

RemotePart = Callable[[str, str, str, int], Awaitable[Any]]
"""Runs a part in a worker: `PartRunner.run`, as a module-level function."""

_CLOSE_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 10.0
"""Seconds between checks for a lost engine while no part runs."""
_CHECK_SECONDS: Final = 1.0
"""Seconds between checks that the scheduler is still connected."""
_PATIENCE: Final = 30.0
"""Seconds to wait for a scheduler or a worker: longer than a restart takes."""
_PAUSE_SECONDS: Final = 1.0
"""Pause before a lost part is submitted again."""


class _LostPartError(Exception):
    """A part must be computed again."""


class EngineExecutor(executor.Executor):
    """Runs parts on a Dask engine."""

    def __init__(
        self,
        address: str,
        *,
        tls: TlsFiles,
        remote: RemotePart,
        jobs: OfferedJobs,
        metrics: executor.PartMetrics,
        patience: float = _PATIENCE,
    ) -> None:
        """
        Run parts on the scheduler at `address`, tls://HOST:PORT.

        `jobs` offers jobs to the workers, which run `remote`. Without a scheduler or a worker for
        `patience` seconds, parts fail. Raises SettingsError without Dask.
        """
        try:
            import distributed  # noqa: F401, PLC0415  # optional
        except ImportError as error:
            raise SettingsError("an executor needs Dask: install shuffledp[scale]") from error
        for logger in ("distributed", "distributed.client"):  # errors are raised, and logged once
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        self._address = address
        self._tls = tls
        self._remote = remote
        self._jobs = jobs
        self._metrics = metrics
        self._patience = patience
        self._client: Client | None = None
        self._tried = False
        self._connecting = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._running = 0
        self._outdated = False
        """Whether workers may hold a destroyed key."""
        metrics.watch_workers(self._workers)

    async def run(self, stage: Callable[[J, int], T], job: J, parts: Iterable[int]) -> list[T]:
        """
        Run a stage; see `Executor.run`.

        Raises EngineAwayError if the scheduler does not answer, has no workers, or loses a part
        again and again; safe to retry.
        """
        with self._jobs.offer(job) as kind:
            name = stage.__name__
            calls = (self._run_part(kind, job.folder, name, part) for part in parts)
            found = await executor.gather(calls)
        await self._restart_workers()
        return found

    async def _run_part(self, kind: str, folder: str, stage: str, part: int) -> Any:  # noqa: ANN401  # any stage's
        async with self._slot():
            with self._metrics.running():
                for attempt in range(executor.ATTEMPTS):
                    if attempt:
                        self._metrics.record_retry(stage)
                        await asyncio.sleep(_PAUSE_SECONDS)
                    client = await self._connected()
                    with suppress(_LostPartError):
                        call = (self._remote, kind, folder, stage, part)
                        return await self._result(client, client.submit(*call, pure=False))
        raise EngineAwayError(
            f"the engine lost a part {executor.ATTEMPTS} times: its workers die, do not reach the "
            "coordinator, or have another version or wrong settings"
        )

    async def _result(self, client: "Client", future: "Future[Any]") -> Any:  # noqa: ANN401  # any stage's
        """Wait for a part; raise _LostPartError if its worker dies, or its scheduler is lost."""
        from distributed import KilledWorker  # noqa: PLC0415  # optional

        waiting = asyncio.ensure_future(future)
        workerless = 0.0
        try:
            while True:
                await asyncio.wait([waiting], timeout=_CHECK_SECONDS)
                if waiting.done():
                    return waiting.result()
                if client is not self._client or client.status != "running":
                    raise _LostPartError
                workerless = 0.0 if self._workers() else workerless + _CHECK_SECONDS
                if workerless >= self._patience:
                    raise EngineAwayError("the engine has no workers")
        except (PeerError, WireError, SettingsError) as error:  # of another version, or misplaced
            raise _LostPartError from error
        except (KilledWorker, CancelledError, OSError) as error:
            if future.status == "error" and not isinstance(error, KilledWorker):
                raise  # the part's own
            raise _LostPartError from error
        finally:
            waiting.cancel()
            future.release()  # type: ignore[no-untyped-call]

    @asynccontextmanager
    async def _slot(self) -> AsyncGenerator[None]:
        """Hold one of a few slots per worker, so that no part waits long at the scheduler."""
        await self._connected()
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._running < executor.PARTS_AHEAD * max(1, self._total("total_threads"))
            )
            self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            async with self._changed:
                self._changed.notify_all()

    async def keep_connected(self) -> None:
        """Stay connected while no part runs, so that a loss shows before a batch needs it."""
        while True:
            with suppress(EngineAwayError):
                await self._connected()
            await asyncio.sleep(_CONNECT_SECONDS)

    async def forget_keys(self) -> None:
        """Restart all workers once no part runs; see `Executor.forget_keys`."""
        self._outdated = True
        await self._restart_workers()

    async def _restart_workers(self) -> None:
        if self._running or not self._outdated:
            return
        try:
            client = await self._connected()
            found = await client.scheduler.identity(n_workers=-1)  # type: ignore[union-attr]
            await client.restart_workers(list(found["workers"]), timeout=self._patience)
        except (EngineAwayError, CancelledError, OSError, ValueError, AssertionError) as error:
            logs.event("workers not restarted", {"error": type(error).__name__}, level="WARNING")
        else:
            self._outdated = False

    def _workers(self) -> int | None:
        return self._total("n_workers") if self._tried else None

    def _total(self, name: str) -> int:
        """Return a total of the engine as of a few seconds ago; 0 while it is away."""
        if self._client is None or self._client.status != "running":
            return 0
        return int(self._client.scheduler_info()[name])

    async def _connected(self) -> "Client":
        """Return a connected client, or raise EngineAwayError."""
        from distributed import Client, Security  # noqa: PLC0415  # optional

        async with self._connecting:
            if self._client is not None and self._client.status == "running":
                return self._client
            await self.close()
            self._tried = True
            security = Security(  # type: ignore[no-untyped-call]
                require_encryption=True,
                tls_ca_file=str(self._tls.authority),
                tls_client_cert=str(self._tls.certificate),
                tls_client_key=str(self._tls.key),
            )
            client = Client(  # type: ignore[no-untyped-call]
                self._address,
                security=security,
                asynchronous=True,
                set_as_default=False,
                timeout=self._patience,
            )
            try:
                self._client = await client
            except OSError as error:
                raise EngineAwayError("the engine's scheduler does not answer") from error
            return self._client

    async def close(self) -> None:
        """Leave the engine."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(CancelledError, OSError):
                await client.close(timeout=_CLOSE_SECONDS)  # type: ignore[no-untyped-call]


def open_executor(
    service: Service, settings: KeyHolderSettings, pool: HpkePool, remote: RemotePart
) -> executor.Executor:
    """
    Return the executor in a service's settings: an engine whose workers run `remote`, or the pool.

    The service's other processes can fetch the jobs whose parts run.
    """
    metrics, jobs = executor.PartMetrics(service.metrics.metrics, service.clock), OfferedJobs()
    service.internal.append(partial(jobs_pb2_grpc.add_JobsServicer_to_server, jobs))
    if settings.executor is None or settings.internal_tls_directory is None:
        return executor.LocalExecutor(pool=pool, metrics=metrics)
    engine = EngineExecutor(
        settings.executor,
        tls=TlsFiles.within(settings.internal_tls_directory, "coordinator"),
        remote=remote,
        jobs=jobs,
        metrics=metrics,
    )
    service.background.append(engine.keep_connected)
    return service.opened(engine)
