"""The analyzer's gRPC methods: wire in, core, wire out."""

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from analyzer.core import AnalyzerCore
from common.errors import ShuffleDpError
from common.runtime import logs
from common.task_digest import TaskDigest
from common.wire.batches import (
    REPORTS_WANTED,
    chunk_from_wire,
    commitment_to_wire,
    delivery_from_wire,
    part_from_wire,
    sentinels_from_wire,
)
from common.wire.fields import digest_from_wire
from common.wire.results import (
    after_from_wire,
    decided_to_wire,
    decision_from_wire,
    ledger_to_wire,
    result_to_wire,
)
from common.wire.tasks import (
    description_to_wire,
    draft_from_wire,
    signed_task_to_wire,
    summaries_to_wire,
    tasks_after_from_wire,
)
from common.wire.transparency import log_to_wire
from protos.shuffledp.v1 import analyzer_pb2, analyzer_pb2_grpc, log_pb2


@dataclass
class AnalyzerServicer(analyzer_pb2_grpc.AnalyzerServicer):
    """Answers the shuffler and operators; common/runtime/access.py lists who may call what."""

    core: AnalyzerCore

    async def CreateTask(
        self, request: analyzer_pb2.CreateTaskRequest, _context: object
    ) -> analyzer_pb2.CreateTaskResponse:
        """Publish and log a task. For operators."""
        signed = await self.core.registry.publish(draft_from_wire(request))
        return analyzer_pb2.CreateTaskResponse(
            task=signed_task_to_wire(signed), witnesses=await self.core.log.publish()
        )

    async def GetLog(
        self, request: log_pb2.GetLogRequest, _context: object
    ) -> log_pb2.GetLogResponse:
        """Return a page of the log."""
        return log_to_wire(self.core.log.copy, request)

    async def GetTask(
        self, request: analyzer_pb2.GetTaskRequest, _context: object
    ) -> analyzer_pb2.GetTaskResponse:
        """Return a published task."""
        signed = await self.core.registry.get(digest_from_wire(request.task_digest))
        return analyzer_pb2.GetTaskResponse(task=signed_task_to_wire(signed))

    async def BeginDelivery(
        self, request: analyzer_pb2.BeginDeliveryRequest, _context: object
    ) -> analyzer_pb2.BeginDeliveryResponse:
        """Begin to receive a permuted batch in parts, or continue."""
        manifest, n_parts = delivery_from_wire(request)
        with _logged_refusals(manifest.task_digest):
            arrived, staged = await self.core.staging.begin(manifest, n_parts)
        return analyzer_pb2.BeginDeliveryResponse(arrived=arrived, staged=staged)

    async def DeliverPart(
        self,
        request_iterator: AsyncIterator[analyzer_pb2.DeliverPartRequest],
        context: "grpc.aio.ServicerContext[Any, Any]",
    ) -> analyzer_pb2.DeliverPartResponse:
        """Receive a part; ask for its reports once its header is accepted."""
        first = await anext(request_iterator, analyzer_pb2.DeliverPartRequest())
        part = part_from_wire(first)
        chunks = (chunk_from_wire(message) async for message in request_iterator)
        with _logged_refusals(part.task_digest):
            ask_for_reports = partial(context.send_initial_metadata, REPORTS_WANTED)
            await self.core.staging.receive(part, chunks, ask_for_reports)
        return analyzer_pb2.DeliverPartResponse()

    async def FinishDelivery(
        self, request: analyzer_pb2.FinishDeliveryRequest, _context: object
    ) -> analyzer_pb2.FinishDeliveryResponse:
        """Commit to the whole batch, and start its release."""
        digest = digest_from_wire(request.task_digest)
        with _logged_refusals(digest):
            commitment = await self.core.releases.finish_delivery(digest)
        return analyzer_pb2.FinishDeliveryResponse(commitment=commitment_to_wire(commitment))

    async def RegisterSentinels(
        self, request: analyzer_pb2.RegisterSentinelsRequest, _context: object
    ) -> analyzer_pb2.RegisterSentinelsResponse:
        """Register sentinels. For operators."""
        digest, sentinels, acknowledged = sentinels_from_wire(request)
        await self.core.registry.register_sentinels(digest, sentinels, acknowledged=acknowledged)
        return analyzer_pb2.RegisterSentinelsResponse()

    async def GetResult(
        self, request: analyzer_pb2.GetResultRequest, _context: object
    ) -> analyzer_pb2.GetResultResponse:
        """Return a released result. For operators."""
        result = await self.core.releases.result(digest_from_wire(request.task_digest))
        return await asyncio.to_thread(result_to_wire, result)

    async def ListTasks(
        self, request: analyzer_pb2.ListTasksRequest, _context: object
    ) -> analyzer_pb2.ListTasksResponse:
        """List tasks and their states. For operators."""
        summaries = await self.core.registry.tasks(tasks_after_from_wire(request))
        return summaries_to_wire(summaries, self.core.clock.now())

    async def DescribeTask(
        self, request: analyzer_pb2.DescribeTaskRequest, _context: object
    ) -> analyzer_pb2.DescribeTaskResponse:
        """Return a task and its state. For operators."""
        digest = digest_from_wire(request.task_digest)
        return description_to_wire(*await self.core.registry.describe(digest))

    async def DecideBatch(
        self, request: analyzer_pb2.DecideBatchRequest, _context: object
    ) -> analyzer_pb2.DecideBatchResponse:
        """Release a quarantined batch, or drop one without a result. For operators."""
        return decided_to_wire(await self.core.releases.decide(*decision_from_wire(request)))

    async def GetLedger(
        self, request: analyzer_pb2.GetLedgerRequest, _context: object
    ) -> analyzer_pb2.GetLedgerResponse:
        """Return entries of the ledger. For operators."""
        return ledger_to_wire(await self.core.store.ledger(after_from_wire(request)))


@contextmanager
def _logged_refusals(digest: TaskDigest) -> Generator[None]:
    try:
        yield
    except ShuffleDpError as error:
        fields: dict[logs.Field, str] = {"error": type(error).__name__}
        logs.event("delivery refused", {**fields, "task_digest": digest.hex()}, level="WARNING")
        raise
