"""
The shuffler's gRPC methods: wire in, core, wire out; and receipts for stored submissions.

A coordinator serves the shuffler's other processes too.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from shuffledp.common.crypto.signing import SigningIdentity, sign_bulk_receipt, sign_receipt
from shuffledp.common.errors import PeerError, PeerRefusalError
from shuffledp.common.messages.submission import STORED_OUTCOMES, Outcome
from shuffledp.common.receiving.delivery_servicer import DeliveryServicer
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire import batches, submissions, tasks, transparency
from shuffledp.common.wire.fields import digest_from_wire
from shuffledp.protos.shuffledp.v1 import (
    coordinator_pb2,
    coordinator_pb2_grpc,
    log_pb2,
    relay_pb2_grpc,
    shuffler_pb2,
    shuffler_pb2_grpc,
)
from shuffledp.shuffler.active_batches import ActiveBatch
from shuffledp.shuffler.batch_states import UNPERMUTED_STATES
from shuffledp.shuffler.core import FrontEndCore
from shuffledp.shuffler.front_end import batch_to_wire
from shuffledp.shuffler.relay.relay_core import RelayCore


class _Call(Protocol):
    """An admitted call."""

    def peer(self) -> str:
        """Identify the connection; empty if it cannot be told from others."""


def bulk_receipt_for(
    identity: SigningIdentity,
    digest: TaskDigest,
    envelopes: Sequence[bytes],
    outcomes: Sequence[Outcome],
) -> bytes:
    """Return one receipt for all stored submissions, in order; empty if there are none."""
    pairs = zip(envelopes, outcomes, strict=True)
    stored = [envelope for envelope, outcome in pairs if outcome in STORED_OUTCOMES]
    return sign_bulk_receipt(identity, digest, stored) if stored else b""


@dataclass
class OperationsServicer:
    """Tells of batches and drops them, at either shuffler; access.py lists who may call."""

    core: FrontEndCore | RelayCore

    async def GetBatchStatus(
        self, request: shuffler_pb2.GetBatchStatusRequest, _context: object
    ) -> shuffler_pb2.GetBatchStatusResponse:
        """Return a batch's status."""
        digest = digest_from_wire(request.task_digest)
        return batches.status_to_wire(await self.core.operations.status(digest))

    async def DropBatch(
        self, request: shuffler_pb2.DropBatchRequest, _context: object
    ) -> shuffler_pb2.DropBatchResponse:
        """Erase a batch that is not delivered. For the operator."""
        digest = digest_from_wire(request.task_digest)
        return batches.dropped_to_wire(await self.core.operations.drop(digest))


@dataclass
class ShufflerServicer(OperationsServicer, shuffler_pb2_grpc.ShufflerServicer):
    """Serves devices and the operator; common/runtime/access.py lists who may call which method."""

    core: FrontEndCore

    async def FetchTask(
        self, request: shuffler_pb2.FetchTaskRequest, _context: object
    ) -> shuffler_pb2.FetchTaskResponse:
        digest, log_size = tasks.task_question_from_wire(request)
        signed = await self.core.collection.fetch_task(digest)
        answer = shuffler_pb2.FetchTaskResponse(task=tasks.signed_task_to_wire(signed))
        if log_size is not None:
            proof = await self.core.log.prove(signed, log_size)
            answer.log_proof.CopyFrom(transparency.log_proof_to_wire(proof))
        return answer

    async def Submit(
        self, request: shuffler_pb2.SubmitRequest, context: _Call
    ) -> shuffler_pb2.SubmitResponse:
        digest, envelope, token = submissions.envelope_from_wire(request)
        outcome = await self.core.collection.submit(digest, envelope, token, peer=context.peer())
        return shuffler_pb2.SubmitResponse(
            repeated=outcome is Outcome.REPEATED,
            receipt=sign_receipt(self.core.identity, digest, envelope),
        )

    async def SubmitBulk(
        self, request: shuffler_pb2.SubmitBulkRequest, context: _Call
    ) -> shuffler_pb2.SubmitBulkResponse:
        digest, envelopes, tokens = submissions.envelopes_from_wire(request)
        outcomes = await self.core.collection.submit_bulk(
            digest, envelopes, tokens, peer=context.peer()
        )
        receipt = bulk_receipt_for(self.core.identity, digest, envelopes, outcomes)
        return submissions.outcomes_to_wire(outcomes, receipt)

    async def GetBatchProgress(
        self, request: shuffler_pb2.GetBatchProgressRequest, _context: object
    ) -> shuffler_pb2.GetBatchProgressResponse:
        digest = digest_from_wire(request.task_digest)
        return batches.progress_to_wire(await self.core.collection.progress(digest))

    async def CloseBatch(
        self, request: shuffler_pb2.CloseBatchRequest, _context: object
    ) -> shuffler_pb2.CloseBatchResponse:
        await self.core.collection.close(digest_from_wire(request.task_digest))
        return shuffler_pb2.CloseBatchResponse()

    async def GetInclusion(
        self, request: shuffler_pb2.GetInclusionRequest, _context: object
    ) -> shuffler_pb2.GetInclusionResponse:
        proof = await self.core.inclusions.relay(*batches.prefix_from_wire(request))
        return batches.proof_to_wire(*proof)


@dataclass
class RelayServicer(OperationsServicer, DeliveryServicer, relay_pb2_grpc.RelayServicer):
    """Receives the first shuffler's batches; common/runtime/access.py lists who may call."""

    core: RelayCore


@dataclass
class CoordinatorServicer(coordinator_pb2_grpc.ShufflerCoordinatorServicer):
    """Serves front-ends with keys; common/runtime/access.py lists who may call which method."""

    core: FrontEndCore

    async def GetIdentity(
        self, _request: coordinator_pb2.GetIdentityRequest, _context: object
    ) -> coordinator_pb2.GetIdentityResponse:
        return coordinator_pb2.GetIdentityResponse(signing_key=self.core.identity.private_bytes())

    async def GetBatch(
        self, request: coordinator_pb2.GetBatchRequest, _context: object
    ) -> coordinator_pb2.GetBatchResponse:
        """Return a task's batch, with its keys until it is permuted."""
        find = self.core.batches.find_or_begin if request.begin else self.core.batches.find
        batch = await find(digest_from_wire(request.task_digest))
        key = None
        if isinstance(batch, ActiveBatch):
            stored = await self.core.store.get(batch.digest)
            if stored.state in UNPERMUTED_STATES:
                key = self.core.batches.envelope_key(batch)
        return batch_to_wire(batch, key)

    async def RelayLog(
        self, request: log_pb2.GetLogRequest, _context: object
    ) -> log_pb2.GetLogResponse:
        """Return a page of the analyzer's log, as far as it is known here."""
        with suppress(PeerError, PeerRefusalError):
            await self.core.log.refresh()
        return transparency.log_to_wire(self.core.log.copy, request)
