"""A relay's core for a task of the tests, and layers and reports of it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from shuffledp.audit.harness.party_cores import InProcessRelay
from shuffledp.common.crypto.hpke import HpkePrivateKey, report_context, split_every
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PeerRefusalError, PeerUnableError, ShuffleDpError
from shuffledp.common.messages.batch import BatchManifest, BatchPart, BatchState, chain_batch_id
from shuffledp.common.messages.inclusion_proof import BatchCommitment
from shuffledp.common.messages.submission import PLAIN_REPORT, plain_reports
from shuffledp.common.task.sealing import report_sealer
from shuffledp.common.task_digest import TaskDigest
from tests.support.analyzers import MemoryAnalyzer
from tests.support.chains import RELAY, chain
from tests.support.tasks import PublishedTask, published

RELAY_KEY = HpkePrivateKey.generate()
CHAIN = published(**chain(relay_key=RELAY_KEY), domain_size=20, n_min=3, target_size=5)
SEALED = CHAIN.task.sealed_report_bytes


class Relay(InProcessRelay):
    """A relay's core with one task, which a first shuffler calls; see shuffler/delivery_client."""

    analyzer: MemoryAnalyzer

    def __init__(self, path: Path, case: PublishedTask = CHAIN, **limits: Any) -> None:
        super().__init__(
            path,
            analyzer=MemoryAnalyzer(case.signed, case.identity),
            pinned=case.identity.public_identity(),
            identity=RELAY,
            key=RELAY_KEY,
            **limits,
        )
        self.case = case

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Return a task that the relay takes part in."""
        with _Refusals():
            return await self.batches.get_task(digest)

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        """Begin to receive a batch, or continue."""
        with _Refusals():
            return await super().begin_delivery(manifest, n_parts)

    async def deliver_part(self, part: BatchPart, chunks: Iterable[bytes | memoryview]) -> None:
        """Receive a part."""
        with _Refusals():
            await super().deliver_part(part, chunks)

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Return the commitment, after which the batch is permuted."""
        with _Refusals():
            return await super().finish_delivery(digest)

    async def deliver(
        self, layers: list[bytes], users: int, n_parts: int = 2, **changes: Any
    ) -> BatchCommitment:
        """Deliver a batch of layers in parts; `changes` replace fields of its manifest."""
        return await self.deliver_parts(self.manifest(layers, users, **changes), layers, n_parts)

    def manifest(self, layers: list[bytes], users: int, **changes: Any) -> BatchManifest:
        """Return the manifest of a batch of layers."""
        digest = self.case.signed.digest()
        fields: dict[str, Any] = {
            "task_digest": digest,
            "batch_id": chain_batch_id(digest),
            "n_users": users,
            "n_reports": len(layers),
            "by_length": (users,),
        }
        return BatchManifest(**fields | changes)

    async def state_of(self, digest: TaskDigest | None = None) -> BatchState:
        """Return the state of a task's batch."""
        return (await self.store.get(digest or self.case.signed.digest())).state


class _Refusals:
    """Raises refusals, and failures that pass, as a client does."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, ShuffleDpError):
            if error.status in {"UNAVAILABLE", "ABORTED"}:
                raise PeerUnableError(str(error)) from error
            raise PeerRefusalError(error.status, str(error)) from error


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
