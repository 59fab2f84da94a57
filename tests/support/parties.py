"""The three parties' cores on real files and an in-memory network; each may crash."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from analyzer.registry import AnalyzerKeys
from analyzer.storage.store import Store
from common.crypto.key_ring import Schedule
from common.crypto.signing import SignedTask, SigningIdentity
from common.messages.batch import BatchManifest
from common.messages.inclusion_proof import BatchCommitment, InclusionProof
from common.runtime.key_store import KeyStore
from common.runtime.state_directory import StateDirectory
from common.task_digest import TaskDigest
from common.wire.batches import proof_from_wire, proof_to_wire
from deploy.audit.harness.analyzer_core import AnalyzerCore
from deploy.audit.harness.clock import ManualClock
from shuffler.receipts import Receipts
from shuffler.storage.sqlite_store import SqliteStore
from tests.support.faults import Crash, Faults, FaultyDatabase, FaultyState, Life, Network
from tests.support.policies import generous
from tests.support.shuffler_core import Shuffler
from user_agent.agent import Agent
from user_agent.credentials import PersonalSecrets
from user_agent.device_store import DeviceStore
from user_agent.inclusion_monitor import InclusionMonitor

T = TypeVar("T")

_IDENTITY: Final = SigningIdentity.generate()
_SCHEDULE: Final = Schedule(lifetime=1000.0, overlap=200.0, retention=100_000.0)
"""Keys that are replaced while tasks run, so that batches are opened with expired ones."""


@dataclass
class Surroundings:
    """A folder, clock, network, faults and seeds that all parties share."""

    path: Path
    clock: ManualClock = field(default_factory=ManualClock)
    network: Network = field(default_factory=Network)
    faults: Faults = field(default_factory=Faults)
    seeds: Iterator[int] = field(default_factory=itertools.count)

    def rng(self) -> np.random.Generator:
        """Return a new generator for each start of a party."""
        return np.random.default_rng(next(self.seeds))


class AnalyzerParty(AnalyzerCore):
    """An analyzer's core with boundaries."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around.path / "analyzer")
        self._around = around
        self.life = Life("analyzer", around.faults)

    def open_files(self) -> None:
        """Open the keys and the database, with boundaries."""
        self.life = Life("analyzer", self._around.faults)
        self.clock = self._around.clock
        state = FaultyState.of(self.path, self.life)
        self.keys = AnalyzerKeys.load(state, _SCHEDULE, self.clock.now())
        self.store = Store(self.path / "analyzer.sqlite")
        self.store._database = FaultyDatabase(self.store._database, self.life)

    async def start(self) -> None:
        """Start, or restart on the same files."""
        await super().start()
        await self.releases.resume()

    async def rotate(self) -> None:
        """Rotate the keys that are due."""
        needed = await self.registry.needed_keys(_SCHEDULE.retention)
        self.keys.reports.rotate(self._around.clock.now(), needed)

    async def settle(self) -> None:
        """Wait until all releases end, or the party crashes."""
        while releasing := list(self.releases._releasing.values()):
            over = asyncio.ensure_future(self.life.over.wait())
            await asyncio.wait({over, *releasing}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            if self.life.over.is_set():
                return
            await asyncio.sleep(0)

    async def end(self) -> None:
        """Stop at once, as a killed process does."""
        self.life.over.set()
        await self.stop()


class ShufflerParty(Shuffler):
    """A shuffler's core, which is its own client of the analyzer and records its deliveries."""

    def __init__(self, around: Surroundings, analyzer: AnalyzerParty) -> None:
        super().__init__(around.path / "shuffler", keep_seconds=10.0**6)
        self._around = around
        self._to = analyzer
        self.clock = around.clock
        self.analyzer = self  # type: ignore[assignment]  # the core's client
        self.delivered: list[tuple[BatchManifest, list[bytes]]] = []
        """Every delivery that began, with the chunks sent so far."""
        self.life = Life("shuffler", around.faults)

    async def start(self) -> None:
        """Start, or restart on the same files."""
        self.life = Life("shuffler", self._around.faults)
        self.identity = self._to.keys.identity.public_identity()
        self.rng = self._around.rng()
        await super().start()

    def open_state(self) -> StateDirectory:
        """Open the state directory, with boundaries."""
        return FaultyState.of(self.path, self.life)

    def open_keys(self, state: StateDirectory) -> KeyStore:
        """Open keys with a short lifetime."""
        keys = KeyStore(state, _SCHEDULE)
        keys.rotate(self.clock.now())
        return keys

    def open_store(self) -> SqliteStore:
        """Open the database, with boundaries."""
        store = super().open_store()
        store._database = FaultyDatabase(store._database, self.life)
        return store

    async def rotate(self) -> None:
        """Rotate its keys."""
        self.keys.rotate(self.clock.now(), self.batches.needed_keys())

    async def _call(self, act: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._around.network.call(self.life, self._to.life, act, work)

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a task from the analyzer; see shuffler/analyzer_client."""
        return await self._call("fetch task", lambda: self._to.registry.get(digest))

    async def deliver(
        self, manifest: BatchManifest, chunks: AsyncIterator[bytes]
    ) -> BatchCommitment | None:
        """Deliver a batch to the analyzer; see shuffler/analyzer_client."""
        seen: list[bytes] = []
        self.delivered.append((manifest, seen))

        async def recorded() -> AsyncIterator[bytes]:
            try:
                async for chunk in chunks:
                    seen.append(chunk)
                    yield chunk
            except Crash:
                raise ConnectionError from None

        return await self._call(
            "deliver batch", lambda: self._to.releases.deliver(manifest, recorded())
        )

    async def advance(self) -> None:
        """Advance every batch that is due, until the end or a crash."""
        self.deliveries._not_before.clear()
        try:
            await super().advance()
        except Crash:
            await asyncio.gather(*self.deliveries._moving.values(), return_exceptions=True)

    async def end(self) -> None:
        """Stop at once, as a killed process does."""
        self.life.over.set()
        moving: list[Any] = [*self.deliveries._moving.values(), *self.batches._beginning.values()]
        if self.store._commits._committing is not None:
            moving.append(self.store._commits._committing)
        for task in moving:
            task.cancel()
        await asyncio.gather(*moving, return_exceptions=True)
        self.store.close()


class DeviceParty:
    """A user agent's core for several persons, which is its own client of the shuffler."""

    def __init__(
        self, around: Surroundings, shuffler: ShufflerParty, analyzer: AnalyzerParty
    ) -> None:
        self._around = around
        self._shuffler = shuffler
        self._analyzer = analyzer
        self.path = around.path / "user_agent"
        self.path.mkdir()

    async def start(self) -> None:
        """Start, or restart on the same files."""
        self.life = Life("user_agent", self._around.faults)
        self.store = DeviceStore(self.path / "budget.sqlite")
        self.store._database = FaultyDatabase(self.store._database, self.life)
        identity = self._analyzer.keys.identity.public_identity()
        shared: dict[str, Any] = {
            "shuffler": self,
            "store": self.store,
            "clock": self._around.clock,
            "rng": self._around.rng(),
        }
        self.agent = Agent(
            **shared,
            policy=generous(identity, 20.0),
            several_persons=True,
            secrets=PersonalSecrets(bytes(32)),
            shuffler_identity=_IDENTITY.public_identity(),
        )
        self.watch = InclusionMonitor(**shared, identity=identity, pause=1.0)

    async def _call(self, act: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._around.network.call(self.life, self._shuffler.life, act, work)

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a task from the shuffler; see user_agent/shuffler_client."""
        return await self._call("fetch task", lambda: self._shuffler.collection.fetch_task(digest))

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """Submit to the shuffler; see user_agent/shuffler_client."""

        async def submit() -> bytes:
            outcome = await self._shuffler.collection.submit(digest, envelope, token)
            return Receipts(_IDENTITY).sign(digest, envelope, outcome)

        return await self._call("submit", submit)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Ask the shuffler for a proof; see user_agent/shuffler_client."""

        async def relayed() -> InclusionProof:
            shown = await self._shuffler.inclusions.relay(digest, prefix)
            return proof_from_wire(proof_to_wire(*shown))

        return await self._call("ask for a proof", relayed)

    async def end(self) -> None:
        """Stop at once, as a killed process does."""
        self.life.over.set()
        self.store.close()
