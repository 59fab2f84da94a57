"""Calls from the shuffler to the analyzer."""

from collections.abc import Sequence

from common.runtime.rpc import SHORT_DEADLINE
from common.transparency.checkpoint import SignedCheckpoint
from common.wire.transparency import log_from_wire
from protos.shuffledp.v1 import analyzer_pb2_grpc, log_pb2
from shuffler.delivery_client import DeliveryClient


class AnalyzerClient(DeliveryClient):
    """Client of the analyzer."""

    party = "analyzer"
    stub = analyzer_pb2_grpc.AnalyzerStub

    async def get_log(self, after: int) -> tuple[Sequence[bytes], Sequence[SignedCheckpoint]]:
        """Fetch a page of the log's leaves, and its checkpoints, unverified."""
        request = log_pb2.GetLogRequest(after=after)
        return log_from_wire(await self._answer(self._stub.GetLog(request, timeout=SHORT_DEADLINE)))
