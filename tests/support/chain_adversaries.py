"""Dishonest shufflers of tasks with two, which call real parties with their own certificates."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np

from shuffledp.audit.harness.party_cores import part_header, parts_of
from shuffledp.common.crypto.hpke import HpkePrivateKey, layer_context, split_every
from shuffledp.common.crypto.signing import KeyUse, PublicIdentity, SignedTask, SigningIdentity
from shuffledp.common.messages.batch import BatchId, BatchManifest, chain_batch_id
from shuffledp.common.messages.inclusion_proof import (
    BatchCommitment,
    bits_for,
    leaves_of,
    tree_over,
)
from shuffledp.common.messages.submission import plain_reports
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.rpc import bind, open_channel
from shuffledp.common.runtime.tls import Tls, development_files
from shuffledp.common.task.sealing import report_sealer
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.batches import REPORTS_WANTED, commitment_to_wire, delivery_from_wire
from shuffledp.common.wire.fields import digest_from_wire
from shuffledp.common.wire.tasks import signed_task_to_wire
from shuffledp.protos.shuffledp.v1 import analyzer_pb2, relay_pb2_grpc
from shuffledp.shuffler.delivery import chunks_of_part
from shuffledp.shuffler.delivery_client import AnalyzerClient, DeliveryClient
from shuffledp.shuffler.shuffle_job import PART_BYTES
from tests.support.keys import signed_key
from tests.support.leaves import SALT

Reports = list[bytes]
_HOP: Final = 1


def sealed(signed: SignedTask, items: Sequence[int], hop: int = 1) -> Reports:
    """Seal reports of these items as a device does; at hop 2, without the relay's layer."""
    seal = report_sealer(Task.from_bytes(signed.task_bytes), signed.digest(), hop)
    return [seal(report.tobytes()) for report in plain_reports(np.array(items, np.int64))]


def manifest_of(
    digest: TaskDigest,
    n_users: int,
    n_reports: int,
    *,
    n_discarded: int = 0,
    batch_id: BatchId | None = None,
) -> BatchManifest:
    """Return the manifest of a batch of a task with two shufflers."""
    return BatchManifest(
        task_digest=digest,
        batch_id=batch_id or chain_batch_id(digest),
        n_users=n_users,
        n_reports=n_reports,
        n_discarded=n_discarded,
        by_length=(n_users,),
    )


async def deliver(client: DeliveryClient, manifest: BatchManifest, reports: Reports) -> None:
    """Deliver the parts that the receiver does not have, without finishing."""
    size = len(reports[0])
    parts = parts_of(reports, max(2, len(reports) * size // PART_BYTES))
    arrived, staged = await client.begin_delivery(manifest, len(parts))
    for number, some in enumerate(parts):
        if not staged and number not in arrived:
            header = part_header(manifest.task_digest, number, some)
            await client.deliver_part(header, chunks_of_part(b"".join(some), size))


@asynccontextmanager
async def first_shuffler(tls: Path, relay: str) -> AsyncIterator[DeliveryClient]:
    """Yield a client of a relay with the first shuffler's certificate."""
    own = development_files(tls, "shuffler", SystemClock()).read()
    async with open_channel(relay, "relay", own.authority, own=own) as channel:
        yield DeliveryClient(channel)


class DishonestRelay(relay_pb2_grpc.RelayServicer):
    """Takes the place of a second shuffler: keeps all that arrives, and delivers what it likes."""

    def __init__(self) -> None:
        self.identity, self.key = SigningIdentity.generate(), HpkePrivateKey.generate()
        self.signed_key = signed_key(self.key.public_key(), self.identity, KeyUse.LAYERS)
        self.aborts: list[str] = []
        """Methods to fail, each once it has read everything, in this order."""
        self.parts: list[tuple[int, bytes]] = []
        """Every part that arrived, in the order of arrival, and again if it was sent again."""
        self.manifests: list[BatchManifest] = []
        self.forged_leaves = 0
        """Number of leaves to sign, instead of the true one."""
        self.finished = False
        self._task: Task | None = None

    async def start(self, tls: Path, analyzer: str, pinned: str) -> None:
        """Listen, and connect to the analyzer."""
        files = development_files(tls, "relay", SystemClock())
        own = files.read()
        self._channel = open_channel(analyzer, "analyzer", own.authority, own=own)
        self.client, self.pinned = AnalyzerClient(self._channel), pinned
        self._server = grpc.aio.server(options=(("grpc.max_receive_message_length", -1),))
        relay_pb2_grpc.add_RelayServicer_to_server(self, self._server)
        identity = Tls.open(files, "relay", SystemClock())
        self.address = bind(self._server, "127.0.0.1:0", identity, ask_for_certificates=True)
        await self._server.start()

    async def stop(self) -> None:
        """Close both ends."""
        await self._server.stop(None)
        await self._channel.close()

    def reports(self) -> Reports:
        """Return the reports inside the layers, in the order of delivery."""
        context = layer_context(self._digest, _HOP)
        return [self.key.open(layer, context) for layer in split_every(*self._layers())]

    def _layers(self) -> tuple[bytes, int]:
        """Return all layers, and the length of one."""
        assert self._task
        blob = b"".join(content for _, content in sorted(set(self.parts)))
        return blob, self._task.report_bytes_at(_HOP)

    def manifest(self, n_reports: int, n_discarded: int = 0) -> BatchManifest:
        """Return the first shuffler's manifest with another number of reports."""
        [arrived] = set(self.manifests)
        digest, n_users = arrived.task_digest, arrived.n_users
        return manifest_of(digest, n_users, n_reports, n_discarded=n_discarded)

    async def release(self, reports: Reports, n_discarded: int = 0) -> BatchCommitment:
        """Deliver these reports to the analyzer, and finish."""
        manifest = self.manifest(len(reports), n_discarded)
        await deliver(self.client, manifest, reports)
        return await self.client.finish_delivery(manifest.task_digest)

    # --- what the first shuffler calls

    async def GetTask(self, request: Any, _: object) -> analyzer_pb2.GetTaskResponse:  # noqa: N802  # named as in the .proto file
        """Return a task of the analyzer."""
        digest = digest_from_wire(request.task_digest)
        signed = await self.client.get_task(digest)
        identity = PublicIdentity.from_hex(self.pinned, "analyzer_identity")
        self._task, self._digest = Task.verified(signed, digest, identity), digest
        return analyzer_pb2.GetTaskResponse(task=signed_task_to_wire(signed))

    async def BeginDelivery(  # noqa: N802  # named as in the .proto file
        self, request: analyzer_pb2.BeginDeliveryRequest, context: Any
    ) -> analyzer_pb2.BeginDeliveryResponse:
        """Take no part for arrived, so that every one is sent again."""
        manifest, _ = delivery_from_wire(request)
        await self._abort(context, manifest.task_digest, "BeginDelivery")
        self.manifests.append(manifest)
        return analyzer_pb2.BeginDeliveryResponse()

    async def DeliverPart(  # noqa: N802  # named as in the .proto file
        self, request_iterator: Any, context: Any
    ) -> analyzer_pb2.DeliverPartResponse:
        """Keep a part."""
        header = (await anext(request_iterator)).part
        await context.send_initial_metadata(REPORTS_WANTED)
        content = b"".join([message.sealed_reports async for message in request_iterator])
        self.parts.append((header.part, content))
        await self._abort(context, header.task_digest, "DeliverPart")
        return analyzer_pb2.DeliverPartResponse()

    async def FinishDelivery(  # noqa: N802  # named as in the .proto file
        self, request: analyzer_pb2.FinishDeliveryRequest, context: Any
    ) -> analyzer_pb2.FinishDeliveryResponse:
        """Commit to all layers, as an honest relay does."""
        digest = digest_from_wire(request.task_digest)
        await self._abort(context, digest, "FinishDelivery")
        tree, _ = tree_over(leaves_of(*self._layers()), SALT)
        if self.forged_leaves:
            tree.n_leaves, tree.bits = self.forged_leaves, bits_for(self.forged_leaves)
        batch_id, self.finished = chain_batch_id(digest), True
        signed = BatchCommitment.sign(self.identity, digest, batch_id, tree, SALT)
        return analyzer_pb2.FinishDeliveryResponse(commitment=commitment_to_wire(signed))

    async def _abort(self, context: Any, digest: bytes, method: str) -> None:
        if self._task is None or digest != self._digest:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "a batch of an earlier relay")
        if [method] == self.aborts[:1]:
            self.aborts.pop(0)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "aborted")
