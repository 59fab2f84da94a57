"""A scaled-out deployment on loopback, each of whose processes can be killed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.crypto.hpke import report_context
from shuffledp.common.crypto.hpke_pool import open_each
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import SettingsError
from shuffledp.common.messages.submission import PLAIN_REPORT
from shuffledp.common.runtime.key_store import KeyStore
from shuffledp.common.runtime.settings import KeyHolderSettings
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.task.task import Task
from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.deploy.clients.local_parties import Child
from tests.scale.chaos import Restart
from tests.scale.recording_analyzer import recorded_parts
from tests.support.engines import Engine, free_port
from tests.support.postgres import PostgresServer

_FRONT_ENDS: Final = 3
_WORKERS: Final = 2
_PAUSE: Final = 0.5
T = TypeVar("T")


class ScaleCluster(Cluster):
    """Three front-ends on PostgreSQL, two coordinators, and an engine of two workers for each."""

    _modules: ClassVar[Mapping[str, str]] = {"analyzer": "tests.scale.recording_analyzer"}

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.front_ends: list[Child] = []
        self._postgres = PostgresServer(settings="")  # durable: it is killed
        self._internal = {party: f"127.0.0.1:{free_port()}" for party in ("analyzer", "shuffler")}
        self._engines: dict[str, Engine] = {}
        self._restarting = {party: asyncio.Lock() for party in self._internal}
        """Held while an engine's processes restart: a scheduler restarts with its workers."""

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._postgres.start)
            self._store = self._postgres.database()
            for party in self._internal:
                await self._start_engine(party)
            await self.start_analyzer()
            await self.start_shuffler()
            for number in range(_FRONT_ENDS):
                self.front_ends.append(await self._start_front_end(number))
        except BaseException:
            await self.stop()
            raise
        return self

    async def _start_engine(self, party: str) -> None:
        folder = self.directory / f"{party}-engine"
        folder.mkdir(mode=0o700)
        self._engines[party] = engine = Engine(folder, self._worker_settings(party))
        await engine.start_scheduler()
        engine.start_workers()

    async def start_analyzer(self, **changes: Any) -> None:
        """Start the analyzer's coordinator, without witnesses."""
        own = {"witnesses": [], **self._coordinator("analyzer")}
        await super().start_analyzer(**own | changes)

    async def start_shuffler(self, **changes: Any) -> None:
        """Start the shuffler's coordinator."""
        own = {"store": self._store, **self._coordinator("shuffler")}
        await super().start_shuffler(**own | changes)

    async def _start_front_end(self, number: int, listen: str = "127.0.0.1:0") -> Child:
        started: Child = await self._start(
            "shuffler",
            f"front-end-{number}",
            listen=listen,
            role="front-end",
            analyzer=self.analyzer.address,
            analyzer_identity=self.identity,
            store=self._store,
            submissions_per_connection=0,
            opening_processes=1,
            coordinator=self._internal["shuffler"],
            internal_tls_directory=str(self._engines["shuffler"].certificates),
            blocks=self._blocks("shuffler"),
        )
        return started

    def items_in_order(self, signed: SignedTask) -> NDArray[np.int64]:
        """Open the reports that the analyzer recorded; return their items in order of delivery."""
        parts = sorted(
            recorded_parts(self.analyzer.state).iterdir(), key=lambda path: int(path.name)
        )
        sealed = b"".join(path.read_bytes() for path in parts)
        return opened_items(self.analyzer.state, signed, sealed)

    def victims(self) -> Mapping[str, Restart]:
        """Return what can be killed: each is killed and started again."""
        found: dict[str, Restart] = {
            "postgresql": self._restart_postgresql,
            "analyzer": partial(self._restart_coordinator, "analyzer"),
            "coordinator": partial(self._restart_coordinator, "shuffler"),
        }
        for number in range(_FRONT_ENDS):
            found[f"front-end-{number}"] = partial(self._restart_front_end, number)
        for party in self._engines:
            found[f"{party}-scheduler"] = partial(self._restart_scheduler, party)
            for number in range(_WORKERS):
                found[f"{party}-worker-{number}"] = partial(self._restart_worker, party, number)
        return found

    async def stop(self) -> None:
        """Stop everything, callers first."""
        await asyncio.gather(*(child.stop() for child in self.front_ends))
        await super().stop()
        for engine in self._engines.values():
            engine.stop()
        await asyncio.to_thread(self._postgres.remove)

    async def _restart_postgresql(self) -> None:
        await asyncio.to_thread(self._postgres.stop)
        await asyncio.to_thread(self._postgres.start)

    async def _restart_coordinator(self, party: str) -> None:
        child = self.analyzer if party == "analyzer" else self.shuffler
        await kill(child)
        start = self.start_analyzer if party == "analyzer" else self.start_shuffler
        await supervised(partial(start, listen=child.address))

    async def _restart_front_end(self, number: int) -> None:
        child = self.front_ends[number]
        await kill(child)
        start = partial(self._start_front_end, number, child.address)
        self.front_ends[number] = await supervised(start)

    async def _restart_scheduler(self, party: str) -> None:
        engine = self._engines[party]
        async with self._restarting[party]:
            await asyncio.to_thread(engine.kill, "scheduler")
            await engine.start_scheduler()
            engine.start_workers()

    async def _restart_worker(self, party: str, number: int) -> None:
        async with self._restarting[party]:
            await asyncio.to_thread(self._engines[party].restart_worker, number)

    def _coordinator(self, party: str) -> dict[str, str]:
        """Return the settings of a party's coordinator."""
        engine = self._engines[party]
        return {
            "role": "coordinator",
            "coordinator_listen": self._internal[party],
            "internal_tls_directory": str(engine.certificates),
            "blocks": self._blocks(party),
            "executor": engine.address,
        }

    def _blocks(self, party: str) -> str:
        return (self.directory / f"{party}-blocks").absolute().as_uri()

    def _worker_settings(self, party: str) -> dict[str, str]:
        """Return the environment of an engine's workers."""
        settings = {
            "role": "worker",
            "state_directory": str(self.directory / f"{party}-worker"),
            "coordinator": self._internal[party],
            "internal_tls_directory": str(self.directory / f"{party}-engine" / "internal"),
            "blocks": self._blocks(party),
            "plaintext": "true",
        }
        if party == "shuffler":
            settings |= {"analyzer": "127.0.0.1:1", "analyzer_identity": "ab" * 32}
            settings["store"] = self._store
        return {f"SHUFFLEDP_{party}_{key}".upper(): value for key, value in settings.items()}


def opened_items(analyzer: Path, signed: SignedTask, sealed: bytes) -> NDArray[np.int64]:
    """Open sealed reports with the keys in an analyzer's state directory; return their items."""
    task, state = Task.from_bytes(signed.task_bytes), StateDirectory.open(analyzer)
    keys = KeyStore(state, KeyHolderSettings(state_directory=state.path, plaintext=True).schedule())
    key = keys.private_key(task.suite, task.analyzer_key, whose="analyzer_key")
    opened = open_each(key, sealed, task.sealed_report_bytes, report_context(signed.digest()))
    return np.frombuffer(opened.plaintexts, PLAIN_REPORT)["item"].astype(np.int64)


async def supervised(start: Callable[[], Awaitable[T]]) -> T:
    """Start a process again and again, since it ends while others that it needs are down."""
    while True:
        try:
            return await start()
        except SettingsError:
            await asyncio.sleep(_PAUSE)


async def kill(child: Child) -> None:
    """Kill a process, and wait for its end."""
    child.process.kill()
    await child.process.wait()
