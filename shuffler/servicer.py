"""Wire in, core, wire out."""

from common.evidence_wire import prefix_from_wire, proof_to_wire
from common.submission import Outcome
from common.wire import (
    digest_from_wire,
    envelope_from_wire,
    envelopes_from_wire,
    outcomes_to_wire,
    signed_task_to_wire,
    status_to_wire,
)
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffler.collection import Collection
from shuffler.inclusion import Inclusions
from shuffler.receipts import Receipts


class ShufflerServicer(shuffler_pb2_grpc.ShufflerServicer):
    """Answers devices."""

    def __init__(self, collection: Collection, receipts: Receipts, inclusions: Inclusions) -> None:
        self._collection = collection
        self._receipts = receipts
        self._inclusions = inclusions

    async def FetchTask(
        self, request: shuffler_pb2.FetchTaskRequest, _context: object
    ) -> shuffler_pb2.FetchTaskResponse:
        """Give a published task."""
        signed = await self._collection.fetch_task(digest_from_wire(request.task_digest))
        return shuffler_pb2.FetchTaskResponse(task=signed_task_to_wire(signed))

    async def Submit(
        self, request: shuffler_pb2.SubmitRequest, _context: object
    ) -> shuffler_pb2.SubmitResponse:
        """Take one submission."""
        digest, envelope = envelope_from_wire(request)
        outcome = await self._collection.submit(digest, envelope)
        return shuffler_pb2.SubmitResponse(
            repeated=outcome is Outcome.REPEATED,
            receipt=self._receipts.one(digest, envelope, outcome),
        )

    async def SubmitBulk(
        self, request: shuffler_pb2.SubmitBulkRequest, _context: object
    ) -> shuffler_pb2.SubmitBulkResponse:
        """Take many submissions."""
        digest, envelopes = envelopes_from_wire(request)
        outcomes = await self._collection.submit_bulk(digest, envelopes)
        return outcomes_to_wire(outcomes, self._receipts.bulk(digest, envelopes, outcomes))

    async def GetBatchStatus(
        self, request: shuffler_pb2.GetBatchStatusRequest, _context: object
    ) -> shuffler_pb2.GetBatchStatusResponse:
        """Tell how far a batch is."""
        return status_to_wire(await self._collection.status(digest_from_wire(request.task_digest)))

    async def GetInclusion(
        self, request: shuffler_pb2.GetInclusionRequest, _context: object
    ) -> shuffler_pb2.GetInclusionResponse:
        """Relay what the analyzer signed, and one bucket."""
        return proof_to_wire(*await self._inclusions.relay(*prefix_from_wire(request)))
