"""A relay's core in this process, on its own files, and what a first shuffler sends to it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from audit.harness.analyzer_core import InlineExecutor, chunks_of, part_header, parts_of
from audit.harness.clock import ManualClock
from common.crypto.hpke import HpkePrivateKey, report_context, split_every
from common.crypto.signing import PublicIdentity, SignedTask
from common.errors import PeerRefusalError, PeerUnableError, ShuffleDpError
from common.messages.batch import BatchManifest, BatchPart, BatchState, chain_batch_id
from common.messages.inclusion_proof import BatchCommitment
from common.messages.submission import PLAIN_REPORT, plain_reports
from common.runtime.blocks import FolderBlocks
from common.runtime.key_store import KeyStore
from common.runtime.metrics import ProcessMetrics
from common.runtime.state_directory import StateDirectory
from common.task.sealing import report_sealer
from common.task_digest import TaskDigest
from shuffler.metrics import METRICS
from shuffler.relay.relay_core import RelayCore
from shuffler.relay.relay_store import RelayStore
from shuffler.settings import ShufflerSettings
from tests.support.analyzers import MemoryAnalyzer
from tests.support.chains import RELAY, chain
from tests.support.keys import store_holding
from tests.support.tasks import PublishedTask, published

RELAY_KEY = HpkePrivateKey.generate()
CHAIN = published(**chain(relay_key=RELAY_KEY), domain_size=20, n_min=3, target_size=5)
SEALED = CHAIN.task.sealed_report_bytes


class Relay(RelayCore):
    """A relay's core; `start` makes it, and makes it again after a crash."""

    clock: ManualClock
    analyzer: MemoryAnalyzer

    def __init__(self, path: Path, case: PublishedTask = CHAIN, **limits: Any) -> None:
        self.path, self.case, self.limits = path, case, limits
        self.pinned: PublicIdentity = case.identity.public_identity()
        self.identity, self.clock = RELAY, ManualClock()
        self.analyzer = MemoryAnalyzer(case.signed, case.identity)
        self.rng = np.random.default_rng(1)

    async def start(self) -> None:
        """Start, or restart on the same files."""
        self.path.mkdir(exist_ok=True)
        self.state, blocks = self.open_state(), FolderBlocks(self.path / "blocks")
        self.executor = self.open_executor()
        super().__init__(
            settings=ShufflerSettings(
                state_directory=self.path,
                role="relay",
                plaintext=True,
                analyzer="127.0.0.1:1",
                analyzer_identity=self.pinned.raw.hex(),
                **self.limits,
            ),
            state=self.state,
            keys=self.open_keys(self.state),
            identity=self.identity,
            analyzer=self.analyzer,
            store=self.open_store(blocks),
            blocks=blocks,
            executor=self.executor,
            process_metrics=ProcessMetrics("shuffler", METRICS, self.clock),
            clock=self.clock,
            rng=self.rng,
        )
        await self.resume()

    def open_state(self) -> StateDirectory:
        """Open the folder of keys and seeds."""
        return StateDirectory.open(self.path / "unsaved")

    def open_executor(self) -> InlineExecutor:
        """Return what runs the parts."""
        return InlineExecutor()

    def open_keys(self, state: StateDirectory) -> KeyStore:
        """Open the keys, the task's among them."""
        return store_holding(state, RELAY_KEY, now=self.clock.now())

    def open_store(self, blocks: FolderBlocks) -> RelayStore:
        """Open the database."""
        return RelayStore(self.path / "relay.sqlite", blocks)

    async def restart(self) -> None:
        """Restart on the same files, as after a crash."""
        self.store.close()
        await self.start()

    async def state_of(self, digest: TaskDigest | None = None) -> BatchState:
        """Return the state of a task's batch."""
        return (await self.store.get(digest or self.case.signed.digest())).state

    # --- the first shuffler's calls; see shuffler/delivery_client

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Return a task that the relay takes part in."""
        with _Refusals():
            return await self.batches.get_task(digest)

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        """Begin to receive a batch, or continue."""
        with _Refusals():
            arrived, staged = await self.staging.begin(manifest, n_parts)
        return set(arrived), staged

    async def deliver_part(self, part: BatchPart, chunks: Iterable[bytes | memoryview]) -> None:
        """Receive a part."""
        with _Refusals():
            await self.staging.receive(part, chunks_of([b"".join(chunks)]))

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Return the commitment, after which the batch is permuted."""
        with _Refusals():
            return await self.staging.finish_delivery(digest)

    # --- a first shuffler of one's own

    async def deliver(
        self, layers: list[bytes], users: int, n_parts: int = 2, **changes: Any
    ) -> BatchCommitment:
        """Deliver a batch of layers in parts."""
        sent = manifest_of(layers, users, self.case, **changes)
        arrived, staged = await self.staging.begin(sent, n_parts)
        for number, reports in enumerate(parts_of(layers, n_parts)):
            if not staged and number not in arrived:
                header = part_header(sent.task_digest, number, reports)
                await self.staging.receive(header, chunks_of(reports))
        return await self.staging.finish_delivery(sent.task_digest)


class _Refusals:
    """Raises refusals, and failures that pass, as a client does."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, ShuffleDpError):
            if error.status in {"UNAVAILABLE", "ABORTED"}:
                raise PeerUnableError(str(error)) from error
            raise PeerRefusalError(error.status, str(error)) from error


def manifest_of(
    layers: list[bytes], users: int, case: PublishedTask = CHAIN, **changes: Any
) -> BatchManifest:
    """Return the manifest of a batch of layers."""
    fields: dict[str, Any] = {
        "task_digest": case.signed.digest(),
        "batch_id": chain_batch_id(case.signed.digest()),
        "n_users": users,
        "n_reports": len(layers),
        "by_length": (users,),
    }
    return BatchManifest(**fields | changes)


def sealed_layers(items: Iterable[int], case: PublishedTask = CHAIN, hop: int = 1) -> list[bytes]:
    """Seal reports of these items, with a layer as for the relay."""
    seal = report_sealer(case.task, case.signed.digest(), hop)
    return [seal(report.tobytes()) for report in plain_reports(np.array([*items], np.int64))]


def items_of(blob: bytes, case: PublishedTask = CHAIN) -> list[int]:
    """Open concatenated reports as the analyzer does, and return their items in order."""
    context, sealed = report_context(case.signed.digest()), split_every(blob, SEALED)
    opened = [case.analyzer_key.open(report, context) for report in sealed]
    items: list[int] = np.frombuffer(b"".join(opened), PLAIN_REPORT)["item"].tolist()
    return items
