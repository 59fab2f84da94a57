"""Calls from the shuffler to the analyzer."""

from collections.abc import Sequence
from typing import Protocol

from common.crypto.signing import SignedTask
from common.runtime.rpc import SHORT_DEADLINE
from common.task_digest import TaskDigest
from common.transparency.checkpoint import SignedCheckpoint
from common.wire.tasks import signed_task_from_wire
from common.wire.transparency import log_from_wire
from protos.shuffledp.v1 import analyzer_pb2, log_pb2
from shuffler.delivery_client import DeliveryClient, NextHop


class Analyzer(NextHop, Protocol):
    """The analyzer's methods that the shuffler calls."""

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a published task."""


class AnalyzerClient(DeliveryClient):
    """Client of the analyzer."""

    party = "analyzer"

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a published task."""
        request = analyzer_pb2.GetTaskRequest(task_digest=digest)
        response = await self._answer(self._stub.GetTask(request, timeout=SHORT_DEADLINE))
        return signed_task_from_wire(response.task)

    async def get_log(self, after: int) -> tuple[Sequence[bytes], Sequence[SignedCheckpoint]]:
        """Fetch a page of the log's leaves, and its checkpoints, unverified."""
        request = log_pb2.GetLogRequest(after=after)
        return log_from_wire(await self._answer(self._stub.GetLog(request, timeout=SHORT_DEADLINE)))
