"""The shuffler's gRPC methods: parse, call the core, answer. Receipts follow the commit."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from common.crypto.signing import SigningIdentity, sign_bulk_receipt, sign_receipt
from common.errors import ShareError
from common.messages.submission import Outcome
from common.runtime.admission_interceptor import is_one_connection
from common.task_digest import TaskDigest
from common.wire.batches import progress_to_wire, status_to_wire
from common.wire.evidence import prefix_from_wire, proof_to_wire
from common.wire.fields import digest_from_wire
from common.wire.submissions import envelope_from_wire, envelopes_from_wire, outcomes_to_wire
from common.wire.tasks import signed_task_to_wire
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffler.collection import Collection
from shuffler.inclusion import InclusionProofs

_STORED: Final = frozenset({Outcome.STORED, Outcome.REPEATED})

_MAX_CONNECTIONS: Final = 100_000
"""Maximum number of connections counted; the least recent is forgotten first."""


class ConnectionCount:
    """
    Limits submissions per connection where no tokens are required. In memory, never logged.

    It stops careless clients only: a client evades it by opening many connections, while tokens
    limit people. Nothing is counted on a Unix socket, where all connections look alike.
    """

    def __init__(self, most: int) -> None:
        """Accept at most `most` submissions per connection; 0 for no limit."""
        self._most = most
        self._counts: OrderedDict[str, int] = OrderedDict()

    def take(self, peer: str, submissions: int) -> None:
        """
        Count submissions before they are opened.

        Raises:
            ShareError: The connection has reached its limit.
        """
        if not self._most or not is_one_connection(peer):
            return
        count = self._counts.get(peer, 0) + submissions
        if count > self._most:
            raise ShareError(
                f"a connection may make {self._most} submissions; connect again, later"
            )
        self._counts[peer] = count
        self._counts.move_to_end(peer)
        if len(self._counts) > _MAX_CONNECTIONS:
            self._counts.popitem(last=False)


class Receipts:
    """Signs receipts for stored submissions, only after the commit."""

    def __init__(self, identity: SigningIdentity) -> None:
        self._identity = identity

    def one(self, digest: TaskDigest, envelope: bytes, outcome: Outcome) -> bytes:
        """Return the receipt of a submission; empty if it is not stored."""
        if outcome not in _STORED:
            return b""
        return sign_receipt(self._identity, digest, envelope)

    def bulk(
        self, digest: TaskDigest, envelopes: Sequence[bytes], outcomes: Sequence[Outcome]
    ) -> bytes:
        """Return one receipt for all stored submissions, in order; empty if there are none."""
        stored = envelopes
        if not _STORED.issuperset(outcomes):
            stored = [
                envelope
                for envelope, outcome in zip(envelopes, outcomes, strict=True)
                if outcome in _STORED
            ]
        return sign_bulk_receipt(self._identity, digest, stored) if stored else b""


class _Call(Protocol):
    """The part of gRPC's context that identifies the connection."""

    def peer(self) -> str:
        """Return gRPC's name for the peer."""


class ShufflerServicer(shuffler_pb2_grpc.ShufflerServicer):
    """Answers devices and the operator; common/runtime/access.py lists who may call what."""

    def __init__(
        self,
        collection: Collection,
        connections: ConnectionCount,
        receipts: Receipts,
        inclusions: InclusionProofs,
    ) -> None:
        self._collection = collection
        self._connections = connections
        self._receipts = receipts
        self._inclusions = inclusions

    async def FetchTask(
        self, request: shuffler_pb2.FetchTaskRequest, _context: object
    ) -> shuffler_pb2.FetchTaskResponse:
        """Return a published task."""
        signed = await self._collection.fetch_task(digest_from_wire(request.task_digest))
        return shuffler_pb2.FetchTaskResponse(task=signed_task_to_wire(signed))

    async def Submit(
        self, request: shuffler_pb2.SubmitRequest, context: _Call
    ) -> shuffler_pb2.SubmitResponse:
        """Store one submission."""
        self._connections.take(context.peer(), 1)
        digest, envelope, token = envelope_from_wire(request)
        outcome = await self._collection.submit(digest, envelope, token)
        return shuffler_pb2.SubmitResponse(
            repeated=outcome is Outcome.REPEATED,
            receipt=self._receipts.one(digest, envelope, outcome),
        )

    async def SubmitBulk(
        self, request: shuffler_pb2.SubmitBulkRequest, context: _Call
    ) -> shuffler_pb2.SubmitBulkResponse:
        """Store many submissions."""
        self._connections.take(context.peer(), len(request.envelopes))
        digest, envelopes, tokens = envelopes_from_wire(request)
        outcomes = await self._collection.submit_bulk(digest, envelopes, tokens)
        return outcomes_to_wire(outcomes, self._receipts.bulk(digest, envelopes, outcomes))

    async def GetBatchStatus(
        self, request: shuffler_pb2.GetBatchStatusRequest, _context: object
    ) -> shuffler_pb2.GetBatchStatusResponse:
        """Return a batch's status."""
        return status_to_wire(await self._collection.status(digest_from_wire(request.task_digest)))

    async def GetBatchProgress(
        self, request: shuffler_pb2.GetBatchProgressRequest, _context: object
    ) -> shuffler_pb2.GetBatchProgressResponse:
        """Return a batch's progress, also while it collects. For the operator."""
        digest = digest_from_wire(request.task_digest)
        return progress_to_wire(await self._collection.progress(digest))

    async def CloseBatch(
        self, request: shuffler_pb2.CloseBatchRequest, _context: object
    ) -> shuffler_pb2.CloseBatchResponse:
        """Close a batch early. For the operator."""
        await self._collection.close(digest_from_wire(request.task_digest))
        return shuffler_pb2.CloseBatchResponse()

    async def GetInclusion(
        self, request: shuffler_pb2.GetInclusionRequest, _context: object
    ) -> shuffler_pb2.GetInclusionResponse:
        """Return the analyzer's commitment and one bucket of leaves."""
        return proof_to_wire(*await self._inclusions.relay(*prefix_from_wire(request)))
