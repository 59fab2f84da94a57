"""A shuffler's core over a fake analyzer and a manual clock."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

import numpy as np

from audit.harness.analyzer_core import InlineExecutor
from audit.harness.clock import ManualClock
from common.crypto.hpke import HpkePrivateKey, Opener, SealContext
from common.crypto.hpke_pool import HpkePool
from common.errors import PeerError
from common.messages.batch import BatchState
from common.messages.submission import Outcome
from common.runtime.blocks import FolderBlocks
from common.runtime.key_store import KeyStore
from common.runtime.metrics import ProcessMetrics
from common.runtime.state_directory import StateDirectory
from shuffler.active_batches import ActiveBatches
from shuffler.admission import ConnectionLimit
from shuffler.collection import Collection
from shuffler.delivery import Deliveries
from shuffler.inclusion import InclusionProofs
from shuffler.log_relay import LogRelay
from shuffler.metrics import METRICS, BatchMetrics
from shuffler.refusals import RefusalCounts
from shuffler.storage.sqlite_store import SqliteStore
from tests.support.analyzers import MemoryAnalyzer
from tests.support.keys import SHUFFLER, store_holding
from tests.support.tasks import PublishedTask, published
from user_agent.contribution import Contributor

P = ParamSpec("P")
T = TypeVar("T")
CASE = published(n_min=3, target_size=5)
DIGEST = CASE.signed.digest()


class InlinePool(HpkePool):
    """A pool that opens in the caller's thread."""

    def __init__(
        self, opener: Callable[[HpkePrivateKey, SealContext], Opener] = HpkePrivateKey.opener
    ) -> None:
        """`opener` replaces the function that returns one to open ciphertexts."""
        self._opener = opener
        self.processes = 2
        """Number of workers for which callers split their work."""

    def open_and(
        self,
        key: HpkePrivateKey,
        work: Callable[[Sequence[bytes | None]], T],
        sealed: Sequence[bytes],
        context: SealContext,
    ) -> Future[T]:
        """Open ciphertexts, then run `work` on the plaintexts."""
        return self.submit(work, list(map(self._opener(key, context), sealed)))

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `work`."""
        future: Future[T] = Future()
        future.set_result(work(*args, **kwargs))
        return future


async def _absent_log(after: int) -> NoReturn:
    raise PeerError(f"away, after {after}")


@dataclass
class Shuffler:
    """A shuffler without its server."""

    path: Path
    case: PublishedTask = CASE
    minimum_batch: int = 1
    most_dummies: int = 10_000
    pool: HpkePool | None = None
    """Opens and seals; by default in this thread."""
    keep_seconds: float = 1000.0
    """How long proofs of inclusion are kept, and batches that cannot be delivered."""

    def __post_init__(self) -> None:
        self.analyzer = MemoryAnalyzer(self.case.signed, self.case.identity)
        self.identity = self.case.identity.public_identity()
        self.blocks = FolderBlocks(self.path / "blocks")
        self.clock = ManualClock()
        self.rng = np.random.default_rng(1)
        self._contributor = Contributor(self.case.task, self.case.signed.digest())

    async def start(self) -> None:
        """Start, or restart after a crash."""
        state = self.open_state()
        self.keys = self.open_keys(state)
        self.process_metrics = ProcessMetrics("shuffler", METRICS, self.clock)
        self.refusals = RefusalCounts()
        self.metrics = BatchMetrics(self.process_metrics, self.refusals)
        self.store = self.open_store()
        self.batches = ActiveBatches(
            store=self.store,
            state=state,
            analyzer=self.analyzer,
            identity=self.identity,
            own_identity=SHUFFLER.public_identity(),
            keys=self.keys,
            minimum_batch=self.minimum_batch,
            most_dummies=self.most_dummies,
            rng=self.rng,
        )
        await self.refusals.load(self.store)
        await self.batches.resume()
        self.metrics.resume(await self.store.states(), self.batches.deadlines())
        pool = self.pool or InlinePool()
        self.collection = Collection(
            batches=self.batches,
            store=self.store,
            pool=pool,
            connections=ConnectionLimit(0),
            refusals=self.refusals,
        )
        self.log = LogRelay(_absent_log, self.clock)
        self.inclusions = InclusionProofs(
            blocks=self.blocks,
            identity=self.identity,
            keep_seconds=self.keep_seconds,
            clock=self.clock,
        )
        self.deliveries = Deliveries(
            batches=self.batches,
            executor=InlineExecutor(),
            inclusions=self.inclusions,
            metrics=self.metrics,
            keep_seconds=self.keep_seconds,
        )
        await self.deliveries.resume()
        self.inclusions.delete_expired(incomplete=True)

    async def restart(self) -> None:
        """Restart on the same files, as after a crash."""
        self.store.close()
        await self.start()

    async def advance(self) -> None:
        """Perform every due event, and wait until it is done."""
        unfinished = self.batches.unfinished()
        await asyncio.gather(*(self.deliveries._start(batch) for batch in unfinished))

    def open_state(self) -> StateDirectory:
        """Open the state directory."""
        return StateDirectory.open(self.path)

    def open_keys(self, state: StateDirectory) -> KeyStore:
        """Open the keys, the task's among them."""
        return store_holding(state, self.case.shuffler_key, now=self.clock.now())

    def open_store(self) -> SqliteStore:
        """Open the database of submissions."""
        return SqliteStore(self.path / "spool.sqlite", self.clock, self.metrics.record_move)

    def envelope(self, value: int = 0) -> bytes:
        """Prepare one user's envelope."""
        return self._contributor.prepare(value, self.rng).envelope

    async def submit(self, count: int) -> None:
        """Submit for some users, all of whom are stored."""
        digest = self.case.signed.digest()
        outcomes = await self.collection.submit_bulk(
            digest, [self.envelope() for _ in range(count)]
        )
        assert [Outcome.STORED] * count == outcomes

    async def state(self) -> BatchState:
        """Return the batch's state."""
        return (await self.collection.status(self.case.signed.digest())).state

    async def users(self) -> int:
        """Count the stored submissions."""
        return (await self.store.get(self.case.signed.digest())).n_users

    def key_files(self) -> list[Path]:
        """List the keys of unfinished batches."""
        return list(self.path.glob("batch-*.key"))
