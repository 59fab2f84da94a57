"""A relay's core in this process, on its own files, and what a first shuffler sends to it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from audit.harness.analyzer_core import InlineExecutor, chunks_of, part_header, parts_of
from audit.harness.clock import ManualClock
from audit.harness.memory_analyzer import MemoryAnalyzer
from audit.harness.stored_keys import store_holding
from common.crypto.hpke import HpkePrivateKey
from common.crypto.signing import SignedTask, SigningIdentity
from common.errors import PeerRefusalError, PeerUnableError, ShuffleDpError
from common.messages.batch import BatchManifest, BatchPart, chain_batch_id
from common.messages.inclusion_proof import BatchCommitment
from common.runtime.blocks import FolderBlocks
from common.runtime.key_store import KeyStore
from common.runtime.metrics import ProcessMetrics
from common.runtime.state_directory import StateDirectory
from common.task_digest import TaskDigest
from shuffler.metrics import METRICS
from shuffler.relay.relay_core import RelayCore
from shuffler.relay.relay_store import RelayStore
from shuffler.settings import ShufflerSettings


class InProcessRelay(RelayCore):
    """A relay's core; `start` makes it, and makes it again after a crash."""

    clock: ManualClock
    analyzer: MemoryAnalyzer

    def __init__(
        self,
        path: Path,
        *,
        signed: SignedTask,
        publisher: SigningIdentity,
        identity: SigningIdentity,
        key: HpkePrivateKey,
        **limits: Any,  # noqa: ANN401  # settings
    ) -> None:
        """Serve a task, whose `publisher` is the pinned analyzer; `key` opens its layers."""
        self.path, self.signed, self.limits, self._key = path, signed, limits, key
        self.pinned, self.identity = publisher.public_identity(), identity
        self.clock, self.analyzer = ManualClock(), MemoryAnalyzer(signed, publisher)
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
        return store_holding(state, self._key, now=self.clock.now())

    def open_store(self, blocks: FolderBlocks) -> RelayStore:
        """Open the database."""
        return RelayStore(self.path / "relay.sqlite", blocks)

    async def restart(self) -> None:
        """Restart on the same files, as after a crash."""
        self.store.close()
        await self.start()

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
        self,
        layers: list[bytes],
        users: int,
        n_parts: int = 2,
        **changes: Any,  # noqa: ANN401
    ) -> BatchCommitment:
        """Deliver a batch of layers in parts; `changes` replace fields of its manifest."""
        sent = self.manifest(layers, users, **changes)
        arrived, staged = await self.staging.begin(sent, n_parts)
        for number, reports in enumerate(parts_of(layers, n_parts)):
            if not staged and number not in arrived:
                header = part_header(sent.task_digest, number, reports)
                await self.staging.receive(header, chunks_of(reports))
        return await self.staging.finish_delivery(sent.task_digest)

    def manifest(self, layers: list[bytes], users: int, **changes: Any) -> BatchManifest:  # noqa: ANN401
        """Return the manifest of a batch of layers."""
        digest = self.signed.digest()
        fields: dict[str, Any] = {
            "task_digest": digest,
            "batch_id": chain_batch_id(digest),
            "n_users": users,
            "n_reports": len(layers),
            "by_length": (users,),
        }
        return BatchManifest(**fields | changes)


class _Refusals:
    """Raises refusals, and failures that pass, as a client does."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, ShuffleDpError):
            if error.status in {"UNAVAILABLE", "ABORTED"}:
                raise PeerUnableError(str(error)) from error
            raise PeerRefusalError(error.status, str(error)) from error
