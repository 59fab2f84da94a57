"""The coordinator's gRPC methods for the shuffler's other processes."""

from contextlib import suppress
from dataclasses import dataclass

from common.crypto.signing import SigningIdentity
from common.errors import PeerError, PeerRefusalError
from common.wire.fields import digest_from_wire
from common.wire.tasks import signed_task_to_wire
from common.wire.transparency import log_to_wire
from protos.shuffledp.v1 import coordinator_pb2, coordinator_pb2_grpc, log_pb2
from shuffler.active_batches import ActiveBatch, Batches
from shuffler.log_relay import LogRelay
from shuffler.storage.submission_store import OPEN_STATES, SubmissionStore


@dataclass
class CoordinatorServicer(coordinator_pb2_grpc.ShufflerCoordinatorServicer):
    """Serves front-ends with keys; common/runtime/access.py lists who may call which method."""

    batches: Batches
    store: SubmissionStore
    identity: SigningIdentity
    log: LogRelay

    async def GetIdentity(
        self, _request: coordinator_pb2.GetIdentityRequest, _context: object
    ) -> coordinator_pb2.GetIdentityResponse:
        """Return the identity that receipts are signed with."""
        return coordinator_pb2.GetIdentityResponse(signing_key=self.identity.private_bytes())

    async def GetBatch(
        self, request: coordinator_pb2.GetBatchRequest, _context: object
    ) -> coordinator_pb2.GetBatchResponse:
        """Return a task's batch, with its keys until it is permuted."""
        find = self.batches.find_or_begin if request.begin else self.batches.find
        batch = await find(digest_from_wire(request.task_digest))
        answer = coordinator_pb2.GetBatchResponse(
            batch_id=batch.batch_id,
            n_min=batch.closing_rule.n_min,
            target_size=batch.closing_rule.target_size,
            deadline=batch.closing_rule.deadline,
        )
        if (
            isinstance(batch, ActiveBatch)
            and (await self.store.get(batch.digest)).state in OPEN_STATES
        ):
            collecting = coordinator_pb2.CollectingBatch(
                task=signed_task_to_wire(batch.signed),
                batch_key=batch.key.private_bytes(),
                envelope_key=self.batches.envelope_key(batch).private_bytes(),
            )
            answer.collecting.CopyFrom(collecting)
        return answer

    async def RelayLog(
        self, request: log_pb2.GetLogRequest, _context: object
    ) -> log_pb2.GetLogResponse:
        """Return a page of the analyzer's log, as far as it is known here."""
        with suppress(PeerError, PeerRefusalError):
            await self.log.refresh()
        return log_to_wire(self.log.copy, request)
