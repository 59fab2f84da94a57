"""
Run parts on an engine: Dask, whose workers may be on many machines.

Only the batch's folder, the stage and the part's number travel through the engine; the data stays
in sealed blocks, and a worker fetches the job with its keys from the coordinator. The engine
therefore holds no state: if its scheduler or a worker dies, lost parts are computed again.

Whoever may connect to an engine can run code in it. So it requires certificates of an authority
that signs for this party's own processes alone.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from common.errors import EngineError, SettingsError
from common.runtime import logs
from common.runtime.executor import ATTEMPTS, Job, PartMetrics, gather
from common.runtime.jobs import OfferedJobs
from common.runtime.tls import TlsFiles

if TYPE_CHECKING:
    from distributed import Client

J = TypeVar("J", bound=Job)
T = TypeVar("T")

RemotePart = Callable[[str, str, str, int], Any]
"""Runs a part in a worker, given the job's kind, the batch's folder, the stage and the part."""

_CONNECT_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 1.0
"""Pause before a lost part is submitted again."""
_LOST: Final = "the engine lost a part"


class EngineExecutor:
    """Runs parts on a Dask engine."""

    def __init__(
        self,
        address: str,
        tls: TlsFiles,
        remote: RemotePart,
        jobs: OfferedJobs,
        metrics: PartMetrics,
    ) -> None:
        """
        Run parts on the scheduler at `address`, tls://HOST:PORT.

        `jobs` offers jobs to workers, which run `remote`. Raises SettingsError without Dask.
        """
        try:
            import distributed  # noqa: F401, PLC0415  # optional
        except ImportError as error:
            raise SettingsError("an executor needs Dask: install shuffledp[scale]") from error
        self._address = address
        self._tls = tls
        self._remote = remote
        self._jobs = jobs
        self._metrics = metrics
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._running = 0
        self._outdated = False
        """Whether workers may hold a destroyed key."""

    async def run(self, stage: Callable[[J, int], T], job: J, parts: Iterable[int]) -> list[T]:
        """Run a stage; see `Executor.run`. Raises EngineError if the engine does not answer."""
        self._running += 1
        try:
            with self._jobs.offer(job):
                return await gather(self._run_part(stage, job, part) for part in parts)
        finally:
            self._running -= 1
            if self._outdated:
                await self.forget_keys()

    async def _run_part(self, stage: Callable[[J, int], T], job: J, part: int) -> T:
        with self._metrics.running():
            for attempt in range(ATTEMPTS):
                if attempt:
                    self._metrics.record_retry(stage.__name__)
                    await asyncio.sleep(_PAUSE_SECONDS)
                client = await self._connected()
                with suppress(*_losses()):
                    future = client.submit(
                        self._remote, job.kind, job.folder, stage.__name__, part, pure=False
                    )
                    result: T = await future
                    return result
        raise EngineError(f"{_LOST} {ATTEMPTS} times: its workers die, or its scheduler is away")

    async def _connected(self) -> "Client":
        """Return a connected client, or raise EngineError."""
        from distributed import Client, Security  # noqa: PLC0415  # optional

        async with self._connecting:
            if self._client is None or self._client.status != "running":
                await self.close()
                security = Security(  # type: ignore[no-untyped-call]
                    require_encryption=True,
                    tls_ca_file=str(self._tls.authority),
                    tls_client_cert=str(self._tls.certificate),
                    tls_client_key=str(self._tls.key),
                )
                try:
                    self._client = await Client(  # type: ignore[no-untyped-call]
                        self._address,
                        security=security,
                        asynchronous=True,
                        set_as_default=False,
                        timeout=_CONNECT_SECONDS,
                    )
                except OSError as error:
                    raise EngineError("the engine's scheduler does not answer") from error
            self._metrics.record_workers(len(self._client.scheduler_info()["workers"]))
            return self._client

    async def forget_keys(self) -> None:
        """Restart all workers, once no part runs. A failure is logged, and retried later."""
        self._outdated = True
        if self._running:
            return
        try:
            client = await self._connected()
            await client.restart_workers(list(client.scheduler_info()["workers"]))
        except (*_losses(), EngineError, TimeoutError) as error:
            logs.event("workers not replaced yet", {"error": type(error).__name__}, level="WARNING")
        else:
            self._outdated = False

    async def close(self) -> None:
        """Leave the engine."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # it may be disconnected
                await client.close(timeout=_CONNECT_SECONDS)  # type: ignore[no-untyped-call]


def _losses() -> tuple[type[Exception], ...]:
    """Return the errors of parts that are computed again."""
    from distributed import KilledWorker  # noqa: PLC0415  # optional

    return KilledWorker, CancelledError, OSError
