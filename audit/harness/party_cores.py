"""The cores of the parties in this process: the deployed classes, without servers or workers."""

import asyncio
import hashlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

import shuffledp.shuffler.metrics
from shuffledp.analyzer.core import AnalyzerCore
from shuffledp.analyzer.keys import AnalyzerKeys
from shuffledp.analyzer.metrics import METRICS, ReleaseMetrics
from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.analyzer.storage.store import Store
from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.crypto.hpke import HpkePrivateKey
from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.crypto.key_ring import DAY, Schedule
from shuffledp.common.crypto.signing import PublicIdentity, SignedTask, SigningIdentity
from shuffledp.common.errors import PeerError
from shuffledp.common.messages import inclusion_proof
from shuffledp.common.messages.batch import BatchManifest, BatchPart
from shuffledp.common.messages.inclusion_proof import SALT_BYTES, BatchCommitment, InclusionProof
from shuffledp.common.runtime.blocks import FolderBlocks, StagedBlocks
from shuffledp.common.runtime.key_store import KeyStore
from shuffledp.common.runtime.metrics import ProcessMetrics
from shuffledp.common.runtime.parts.executor import Executor, J, T
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.shuffler_spec import ShufflerSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.batches import proof_from_wire, proof_to_wire
from shuffledp.shuffler.core import BatchCore, ShufflerCore
from shuffledp.shuffler.delivery_client import NextHop, ReceivingParty
from shuffledp.shuffler.relay.relay_core import RelayCore
from shuffledp.shuffler.relay.relay_store import RelayStore
from shuffledp.shuffler.settings import ShufflerSettings
from shuffledp.shuffler.storage.sqlite_store import SqliteStore

SCHEDULE: Final = Schedule(lifetime=90 * DAY, overlap=2 * DAY, retention=30 * DAY)
_TIMEOUT: Final = 60.0
"""Timeout of a release, in seconds."""


class InlineExecutor(Executor):
    """Runs parts in the caller's thread."""

    def __init__(self) -> None:
        self.parts: Counter[str] = Counter()
        """Number of parts run so far, by stage."""

    async def run(self, stage: Callable[[J, int], T], job: J, parts: Iterable[int]) -> list[T]:
        results = [stage(job, part) for part in parts]
        self.parts[stage.__name__] += len(results)
        return results


class Receiving:
    """A core that receives batches, and what a shuffler of one's own delivers to it."""

    staging: Any
    announced: BatchManifest
    """The batch whose delivery began last."""
    delivered = b""
    """Sealed reports of all parts, in the order of arrival."""

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        """Begin to receive a batch, or continue."""
        self.announced = manifest
        arrived, staged = await self.staging.begin(manifest, n_parts)
        return set(arrived), staged

    async def deliver_part(self, part: BatchPart, chunks: Iterable[bytes | memoryview]) -> None:
        """Receive a part."""
        content = b"".join(chunks)
        self.delivered += content
        await self.staging.receive(part, chunks_of([content]))

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Return the commitment, after which the batch is moved on."""
        signed: BatchCommitment = await self.staging.finish_delivery(digest)
        return signed

    async def deliver_parts(
        self, manifest: BatchManifest, sealed: list[bytes], n_parts: int = 2
    ) -> BatchCommitment:
        """Deliver a batch in parts, like the shuffler; return the commitment to it."""
        await self.receive(manifest, sealed, n_parts)
        return await Receiving.finish_delivery(self, manifest.task_digest)

    async def receive(self, manifest: BatchManifest, sealed: list[bytes], n_parts: int = 2) -> None:
        """Receive a batch's parts without staging the batch."""
        arrived, staged = await self.staging.begin(manifest, n_parts)
        for number, reports in enumerate(parts_of(sealed, n_parts)):
            if not staged and number not in arrived:
                header = part_header(manifest.task_digest, number, reports)
                await self.staging.receive(header, chunks_of(reports))


class InProcessAnalyzer(AnalyzerCore, Receiving):
    """An analyzer's core on its own files; `signed` and `task` are the last published task."""

    clock: ManualClock
    executor: InlineExecutor
    store_type: type[Store] = Store
    most_refused_share = AnalyzerSettings.most_refused_share

    def __init__(self, path: Path) -> None:
        """`start` makes the core; `most_refused_share` and `checking` may be changed before."""
        self.path = path
        self.seeds = itertools.count(1, 2)
        """Seeds of the generators; a restart uses a new one, so that no task repeats a nonce."""

    def open_files(self) -> None:
        """Open the keys and the database."""
        self.clock = ManualClock()
        self.state = StateDirectory.open(self.path)
        self.keys = AnalyzerKeys.load(self.state, SCHEDULE, self.clock.now())
        self.store = self.store_type(self.path / "analyzer.sqlite")
        self.executor = InlineExecutor()

    async def start(self) -> None:
        """Start the core, or restart it after a crash."""
        self.open_files()
        self.process_metrics = ProcessMetrics("analyzer", METRICS, self.clock)
        super().__init__(
            store=self.store,
            keys=self.keys,
            blocks=StagedBlocks(self.state, FolderBlocks(self.path / "blocks")),
            executor=self.executor,
            clock=self.clock,
            rng=np.random.default_rng(next(self.seeds)),
            metrics=ReleaseMetrics(self.process_metrics),
            most_refused_share=self.most_refused_share,
            checking=self.checking,
        )
        await self.check()

    async def publish(self, draft: TaskDraft) -> SignedTask:
        """Publish a draft, and return the signed task."""
        self.signed = await self.registry.publish(draft)
        self.task = Task.from_bytes(self.signed.task_bytes)
        return self.signed

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Return a published task."""
        return await self.registry.get(digest)

    async def settle(self) -> None:
        """Wait until no release is in progress."""
        async with asyncio.timeout(_TIMEOUT):
            await self.releases.settled()

    async def stop(self) -> None:
        """Stop, and close the database."""
        await self.releases.stop()
        self.store.close()


def parts_of(sealed: list[bytes], n_parts: int) -> list[list[bytes]]:
    """Divide a batch's sealed reports into parts."""
    edges = [len(sealed) * number // n_parts for number in range(n_parts + 1)]
    return [sealed[start:end] for start, end in itertools.pairwise(edges)]


def part_header(digest: TaskDigest, number: int, reports: list[bytes]) -> BatchPart:
    """Return the header of a part."""
    return BatchPart(
        task_digest=digest,
        part=number,
        n_reports=len(reports),
        content_hash=hashlib.sha256(b"".join(reports)).digest(),
    )


async def chunks_of(sealed: list[bytes], size: int = 3) -> AsyncIterator[bytes]:
    """Yield chunks of `size` sealed reports, concatenated."""
    for start in range(0, len(sealed), size):
        yield b"".join(sealed[start : start + size])


class Recipient(NextHop):
    """Serves one task, and takes every delivery from its start, as if nothing had arrived."""

    lose_answers = False
    """Whether the commitment is lost on its way."""
    forget = 0
    """Number of received reports that the commitment omits."""

    def __init__(self, signed: SignedTask, identity: SigningIdentity) -> None:
        self.signed, self.identity = signed, identity
        self.delivered: list[tuple[BatchManifest, bytes]] = []

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        return self.signed

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        self.begun, self.n_parts, self.parts = manifest, n_parts, dict[int, bytes]()
        return set(), False

    async def deliver_part(self, part: BatchPart, chunks: Iterable[memoryview]) -> None:
        self.parts[part.part] = b"".join(chunks)

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Keep the batch, and commit to it."""
        blob = b"".join(content for _, content in sorted(self.parts.items()))
        self.delivered.append((self.begun, blob))
        if self.lose_answers:
            raise PeerError("the answer was lost")
        leaves = inclusion_proof.leaves_of(blob, len(blob) // self.begun.n_reports)
        kept, salt = leaves[inclusion_proof.HASH_BYTES * self.forget :], bytes(SALT_BYTES)
        tree, _ = inclusion_proof.tree_over(kept, salt)
        return BatchCommitment.sign(self.identity, digest, self.begun.batch_id, tree, salt)


async def _absent_log(after: int) -> NoReturn:
    raise PeerError(f"away, after {after}")


@contextmanager
def permuting() -> Iterator[None]:
    """Let the shufflers of this process draw no dummies, so that they only permute."""
    spec: Any = ShufflerSpec
    deployed = spec.draw_item_dummies
    spec.draw_item_dummies = lambda _spec, n_items, _rng: np.zeros(n_items, dtype=np.int64)
    try:
        yield
    finally:
        spec.draw_item_dummies = deployed


def store_holding(state: StateDirectory, *keys: HpkePrivateKey, now: float = 0.0) -> KeyStore:
    """Return a key store that holds these keys beside its own."""
    for key in keys:
        state.secret(f"hpke-{key.public_key().key_id.hex()}.key", key.private_bytes)
    store = KeyStore(state, SCHEDULE)
    store.rotate(now)
    return store


class InProcessCore(BatchCore):
    """A shuffler's core on its own files; `start` makes it, and makes it again after a crash."""

    clock: ManualClock
    open_store: Callable[[], Any]

    def __init__(
        self,
        path: Path,
        *,
        analyzer: NextHop,
        pinned: PublicIdentity,
        identity: SigningIdentity,
        relay: ReceivingParty | None = None,
        key: HpkePrivateKey | None = None,
        executor: Executor | None = None,
        **limits: Any,  # noqa: ANN401  # settings
    ) -> None:
        """`pinned` is the analyzer's identity; `key` opens what arrives, beside its own keys."""
        self.path, self.analyzer, self.pinned, self.relay = path, analyzer, pinned, relay
        self.identity, self.limits, self._keys = identity, limits, [key] if key else []
        self.clock, self.rng = ManualClock(), np.random.default_rng(1)
        self._executor, self.ports = executor or InlineExecutor(), dict[str, Any]()
        """Fields of the kind of core."""

    async def start(self) -> None:
        """Start, or restart after a crash."""
        self.path.mkdir(parents=True, exist_ok=True)
        state, self.blocks = self.open_state(), FolderBlocks(self.path / "blocks")
        super().__init__(
            settings=ShufflerSettings(
                state_directory=self.path,
                plaintext=True,
                analyzer="127.0.0.1:1",
                analyzer_identity=self.pinned.raw.hex(),
                **self.limits,
            ),
            state=state,
            keys=self.open_keys(state),
            identity=self.identity,
            store=self.open_store(),
            blocks=self.blocks,
            executor=self.open_executor(),
            analyzer=self.analyzer,
            relay=self.relay,
            process_metrics=ProcessMetrics(
                "shuffler", shuffledp.shuffler.metrics.METRICS, self.clock
            ),
            clock=self.clock,
            rng=self.rng,
            **self.ports,
        )
        await self.resume()

    async def restart(self) -> None:
        """Restart on the same files, as after a crash."""
        self.store.close()
        await self.start()

    def open_state(self) -> StateDirectory:
        """Open the directory of keys and seeds."""
        return StateDirectory.open(self.path)

    def open_executor(self) -> Executor:
        """Return what runs the parts."""
        return self._executor

    def open_keys(self, state: StateDirectory) -> KeyStore:
        """Open the keys."""
        return store_holding(state, *self._keys, now=self.clock.now())


class InProcessShuffler(InProcessCore, ShufflerCore):
    """The core of a first or only shuffler."""

    clock: ManualClock
    store: SqliteStore

    def __init__(self, path: Path, *, pool: HpkePool | None = None, **ports: Any) -> None:  # noqa: ANN401
        """`pool` opens bulk submissions and tokens only; it starts a worker on first use."""
        super().__init__(path, submissions_per_connection=0, **ports)
        self.ports = {"pool": pool or HpkePool(1), "get_log": _absent_log}

    def open_store(self) -> SqliteStore:
        """Open the database of submissions."""
        return SqliteStore(self.path / "spool.sqlite", self.clock)

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Return a task, as devices fetch it."""
        return await self.collection.fetch_task(digest)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Return a bucket's proof, as devices read it."""
        return proof_from_wire(proof_to_wire(*await self.inclusions.relay(digest, prefix)))


class InProcessRelay(InProcessCore, RelayCore, Receiving):
    """The core of a second shuffler."""

    def __init__(self, path: Path, **ports: Any) -> None:  # noqa: ANN401
        super().__init__(path, role="relay", **ports)

    def open_state(self) -> StateDirectory:
        """Open the directory of keys and seeds, which is in no backup."""
        return StateDirectory.open(self.path / "unsaved")

    def open_store(self) -> RelayStore:
        """Open the database."""
        return RelayStore(self.path / "relay.sqlite", self.blocks)
