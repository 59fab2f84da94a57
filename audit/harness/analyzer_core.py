"""The analyzer's core in this process, without server or workers, and one that keeps all."""

import asyncio
import hashlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

from analyzer.core import AnalyzerCore
from analyzer.keys import AnalyzerKeys
from analyzer.metrics import METRICS, ReleaseMetrics
from analyzer.settings import AnalyzerSettings
from analyzer.storage.store import Store
from audit.harness.clock import ManualClock
from common.crypto.key_ring import DAY, Schedule
from common.crypto.signing import SignedTask, SigningIdentity
from common.errors import PeerError
from common.messages.batch import BatchManifest, BatchPart
from common.messages.inclusion_proof import (
    HASH_BYTES,
    SALT_BYTES,
    BatchCommitment,
    leaves_of,
    tree_over,
)
from common.runtime.blocks import FolderBlocks, StagedBlocks
from common.runtime.metrics import ProcessMetrics
from common.runtime.parts.executor import Executor, J, T
from common.runtime.state_directory import StateDirectory
from common.task.draft import TaskDraft
from common.task.task import Task
from common.task_digest import TaskDigest

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

    async def deliver_parts(
        self, manifest: BatchManifest, sealed: list[bytes], n_parts: int = 2
    ) -> BatchCommitment:
        """Deliver a batch in parts, like the shuffler; return the commitment to it."""
        await self.receive(manifest, sealed, n_parts)
        signed: BatchCommitment = await self.staging.finish_delivery(manifest.task_digest)
        return signed

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
    announced: BatchManifest
    """The batch whose delivery began last."""

    def __init__(self, path: Path) -> None:
        """`start` makes the core; `most_refused_share` and `checking` may be changed before."""
        self.path = path
        self.delivered = b""
        """Sealed reports of all parts, in the order of arrival."""
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

    # --- the shuffler's calls; see shuffler/delivery_client

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Return a published task."""
        return await self.registry.get(digest)

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
        """Return the commitment, after which the batch is released."""
        return await self.staging.finish_delivery(digest)

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


class Recipient:
    """Serves one task, and takes every delivery from its start, as if nothing had arrived."""

    lose_answers = False
    """Whether the commitment is lost on its way."""
    forget = 0
    """Number of received reports that the commitment omits."""

    def __init__(self, signed: SignedTask, identity: SigningIdentity) -> None:
        self.signed, self.identity = signed, identity
        self.delivered: list[tuple[BatchManifest, bytes]] = []

    async def get_task(self, _: TaskDigest) -> SignedTask:
        """Return the task."""
        return self.signed

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        """Expect a batch."""
        self.begun, self.n_parts, self.parts = manifest, n_parts, dict[int, bytes]()
        return set(), False

    async def deliver_part(self, part: BatchPart, chunks: Iterable[memoryview]) -> None:
        """Keep a part."""
        self.parts[part.part] = b"".join(chunks)

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Keep the batch, and commit to it."""
        blob = b"".join(content for _, content in sorted(self.parts.items()))
        self.delivered.append((self.begun, blob))
        if self.lose_answers:
            raise PeerError("the answer was lost")
        leaves, salt = leaves_of(blob, len(blob) // self.begun.n_reports), bytes(SALT_BYTES)
        tree, _ = tree_over(leaves[HASH_BYTES * self.forget :], salt)
        return BatchCommitment.sign(self.identity, digest, self.begun.batch_id, tree, salt)
