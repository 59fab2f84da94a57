"""The parties' cores on real files and an in-memory network; each may crash."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from shuffledp.common.crypto.signing import SignedTask, envelope_hash, sign_receipt
from shuffledp.common.messages.batch import BatchManifest, BatchPart
from shuffledp.common.messages.inclusion_proof import BatchCommitment, InclusionProof
from shuffledp.common.runtime.key_store import KeyStore
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.delivery import Deliveries
from shuffledp.shuffler.delivery_client import ReceivingParty
from shuffledp.shuffler.relay.relay_store import RelayStore
from shuffledp.shuffler.storage.sqlite_store import SqliteStore
from shuffledp.user_agent.core import Agent
from shuffledp.user_agent.credentials import PersonalSecrets
from shuffledp.user_agent.device_store import DeviceStore
from shuffledp.user_agent.policy import Claim
from tests.support.analyzer_party import SCHEDULE, AnalyzerParty, FaultyExecutor, Surroundings
from tests.support.chains import RELAY
from tests.support.faults import Crash, FaultyState, Life, add_boundaries
from tests.support.keys import SHUFFLER
from tests.support.policies import generous
from tests.support.relays import Relay
from tests.support.shuffler_core import Shuffler

T = TypeVar("T")


class Link:
    """A shuffler's client of another party over the network, which records what it sends."""

    def __init__(self, around: Surroundings, sender: "ShufflerParty | RelayParty", to: Any) -> None:
        self._around, self._sender, self._to = around, sender, to
        self.delivered: dict[BatchManifest, dict[int, bytes]] = {}
        """Every delivery that began, with the parts sent so far."""

    async def _call(self, act: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._around.network.call(self._sender.life, self._to.life, act, work)

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a task; see shuffler/delivery_client."""
        return await self._call("fetch task", lambda: self._to.get_task(digest))

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        """Announce a batch; see shuffler/delivery_client."""
        self.delivered.setdefault(manifest, {})
        return await self._call(
            "begin delivery", lambda: self._to.begin_delivery(manifest, n_parts)
        )

    async def deliver_part(self, part: BatchPart, chunks: Iterable[memoryview]) -> None:
        """Deliver a part; see shuffler/delivery_client."""
        content = b"".join(chunks)
        [parts] = [
            parts
            for manifest, parts in self.delivered.items()
            if manifest.task_digest == part.task_digest
        ]
        assert content == parts.setdefault(part.part, content), "permuted twice"
        await self._call("deliver part", lambda: self._to.deliver_part(part, [content]))

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Fetch the commitment; see shuffler/delivery_client."""
        return await self._call("finish delivery", lambda: self._to.finish_delivery(digest))


async def _advance(deliveries: Deliveries) -> None:
    """Advance every batch that is due, until the end or a crash."""
    deliveries._not_before.clear()
    try:
        await deliveries.advance()
    except Crash:
        await asyncio.gather(*deliveries._moving.values(), return_exceptions=True)


async def _cancel(moving: list[Any]) -> None:
    for task in moving:
        task.cancel()
    await asyncio.gather(*moving, return_exceptions=True)


class ShufflerParty(Shuffler):
    """A shuffler's core, which records its deliveries."""

    def __init__(
        self, around: Surroundings, analyzer: AnalyzerParty, relay: "RelayParty | None" = None
    ) -> None:
        self.to_relay, second = None, None
        if relay is not None:
            self.to_relay, pinned = Link(around, self, relay), RELAY.public_identity()
            second = ReceivingParty(name="relay", client=self.to_relay, identity=pinned)
        super().__init__(around.path / "shuffler", relay=second)
        self._around, self._to = around, analyzer
        self.clock = around.clock
        self.link = Link(around, self, analyzer)
        self.analyzer = self.link  # type: ignore[assignment]  # the core's client
        self.life = Life("shuffler", around.faults)

    @property
    def delivered(self) -> dict[BatchManifest, dict[int, bytes]]:
        """Every delivery to the analyzer that began, with the parts sent so far."""
        return self.link.delivered

    async def start(self) -> None:
        """Start, or restart on the same files."""
        self.life = Life("shuffler", self._around.faults)
        self.pinned = self._to.keys.identity.public_identity()
        self.rng = self._around.rng()
        await super().start()

    def open_state(self) -> StateDirectory:
        """Open the state directory, with boundaries."""
        return FaultyState.of(self.path, self.life)

    def open_keys(self, state: StateDirectory) -> KeyStore:
        """Open keys with a short lifetime."""
        keys = KeyStore(state, SCHEDULE)
        keys.rotate(self.clock.now())
        return keys

    def open_store(self) -> SqliteStore:
        """Open the database, with boundaries."""
        store = super().open_store()
        add_boundaries(store._database, self.life)
        return store

    async def rotate(self) -> None:
        """Rotate its keys."""
        self.keys.rotate(self.clock.now(), await self.batches.needed_keys())

    async def advance(self) -> None:
        """Advance every batch that is due, until the end or a crash."""
        await _advance(self.deliveries)

    async def end(self) -> None:
        """Stop at once, as a killed process does."""
        self.life.over.set()
        moving: list[Any] = [
            *self.deliveries._moving.values(),
            *self.batches._lookups[True].values(),
        ]
        if self.store._commits._committing is not None:
            moving.append(self.store._commits._committing)
        await _cancel(moving)
        self.store.close()


class RelayParty(Relay):
    """A relay's core, which records its deliveries."""

    def __init__(self, around: Surroundings, analyzer: AnalyzerParty) -> None:
        super().__init__(around.path / "relay")
        self._around, self._to = around, analyzer
        self.clock = around.clock
        self.link = Link(around, self, analyzer)
        self.analyzer = self.link  # type: ignore[assignment]  # the core's client
        self.life = Life("relay", around.faults)

    async def start(self) -> None:
        """Start, or restart on the same files."""
        self.life = Life("relay", self._around.faults)
        self.pinned = self._to.keys.identity.public_identity()
        self.rng = self._around.rng()
        await super().start()

    def open_state(self) -> StateDirectory:
        """Open the folder of keys and seeds, with boundaries."""
        return FaultyState.of(self.path / "unsaved", self.life)

    def open_executor(self) -> FaultyExecutor:
        """Return an executor with boundaries."""
        return FaultyExecutor(self.life)

    def open_keys(self, state: StateDirectory) -> KeyStore:
        """Open keys with a short lifetime."""
        keys = KeyStore(state, SCHEDULE)
        keys.rotate(self.clock.now())
        return keys

    def open_store(self) -> RelayStore:
        """Open the database, with boundaries."""
        store = super().open_store()
        add_boundaries(store.database, self.life)
        return store

    async def advance(self) -> None:
        """Advance every batch that is due, until the end or a crash."""
        await _advance(self.deliveries)

    async def end(self) -> None:
        """Stop at once, as a killed process does."""
        self.life.over.set()
        await _cancel([*self.deliveries._moving.values()])
        await self.staging.stop()
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
        self.sent: dict[bytes, bytes] = {}
        """Envelopes by their hash."""

    async def start(self) -> None:
        """Start, or restart on the same files."""
        self.life = Life("user_agent", self._around.faults)
        self.store = DeviceStore(self.path / "budget.sqlite")
        add_boundaries(self.store, self.life)
        add_boundaries(self.store._counter, self.life)
        everything = Claim(local_epsilon=1.0, central_epsilon=1.0, delta=0.0, coalition_epsilon=1.0)
        await self.store.check_counter(everything, np.random.default_rng(0), confirmed=False)
        self.agent = Agent(
            shuffler=self,
            store=self.store,
            policy=generous(self._analyzer.keys.identity.public_identity(), 20.0),
            several_persons=True,
            clock=self._around.clock,
            rng=self._around.rng(),
            secrets=PersonalSecrets(bytes(32)),
            check_seconds=1.0,
        )

    async def _call(self, act: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._around.network.call(self.life, self._shuffler.life, act, work)

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a task from the shuffler; see user_agent/clients.py."""
        return await self._call("fetch task", lambda: self._shuffler.fetch_task(digest))

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """Submit to the shuffler; see user_agent/clients.py."""
        self.sent[envelope_hash(envelope)] = envelope

        async def submit() -> bytes:
            await self._shuffler.collection.submit(digest, envelope, token)
            return sign_receipt(SHUFFLER, digest, envelope)

        return await self._call("submit", submit)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Ask the shuffler for a proof; see user_agent/clients.py."""
        work = partial(self._shuffler.inclusion, digest, prefix)
        return await self._call("ask for a proof", work)

    async def end(self) -> None:
        """Stop at once, as a killed process does."""
        self.life.over.set()
        self.store.close()
