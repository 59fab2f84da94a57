"""The analyzer's gRPC methods: wire in, core, wire out."""

import asyncio
from dataclasses import dataclass

from shuffledp.analyzer.core import AnalyzerCore
from shuffledp.common.receiving.delivery_servicer import DeliveryServicer
from shuffledp.common.wire import batches, results, tasks, transparency
from shuffledp.common.wire.fields import digest_from_wire
from shuffledp.protos.shuffledp.v1 import analyzer_pb2, analyzer_pb2_grpc, log_pb2


@dataclass
class AnalyzerServicer(DeliveryServicer, analyzer_pb2_grpc.AnalyzerServicer):
    """Answers the shuffler and operators; common/runtime/access.py lists who may call what."""

    core: AnalyzerCore

    async def CreateTask(
        self, request: analyzer_pb2.CreateTaskRequest, _context: object
    ) -> analyzer_pb2.CreateTaskResponse:
        signed = await self.core.registry.publish(tasks.draft_from_wire(request))
        return analyzer_pb2.CreateTaskResponse(
            task=tasks.signed_task_to_wire(signed), witnesses=await self.core.log.publish()
        )

    async def GetLog(
        self, request: log_pb2.GetLogRequest, _context: object
    ) -> log_pb2.GetLogResponse:
        return transparency.log_to_wire(self.core.log.copy, request)

    async def RegisterSentinels(
        self, request: analyzer_pb2.RegisterSentinelsRequest, _context: object
    ) -> analyzer_pb2.RegisterSentinelsResponse:
        digest, sentinels, acknowledged = batches.sentinels_from_wire(request)
        await self.core.registry.register_sentinels(digest, sentinels, acknowledged=acknowledged)
        return analyzer_pb2.RegisterSentinelsResponse()

    async def GetResult(
        self, request: analyzer_pb2.GetResultRequest, _context: object
    ) -> analyzer_pb2.GetResultResponse:
        result = await self.core.releases.result(digest_from_wire(request.task_digest))
        return await asyncio.to_thread(results.result_to_wire, result)

    async def ListTasks(
        self, request: analyzer_pb2.ListTasksRequest, _context: object
    ) -> analyzer_pb2.ListTasksResponse:
        summaries = await self.core.registry.tasks(tasks.tasks_after_from_wire(request))
        return tasks.summaries_to_wire(summaries, self.core.clock.now())

    async def DescribeTask(
        self, request: analyzer_pb2.DescribeTaskRequest, _context: object
    ) -> analyzer_pb2.DescribeTaskResponse:
        digest = digest_from_wire(request.task_digest)
        return tasks.description_to_wire(*await self.core.registry.describe(digest))

    async def DecideBatch(
        self, request: analyzer_pb2.DecideBatchRequest, _context: object
    ) -> analyzer_pb2.DecideBatchResponse:
        entry = await self.core.releases.decide(*results.decision_from_wire(request))
        return results.decided_to_wire(entry)

    async def GetLedger(
        self, request: analyzer_pb2.GetLedgerRequest, _context: object
    ) -> analyzer_pb2.GetLedgerResponse:
        entries = await self.core.store.ledger(results.after_from_wire(request))
        return results.ledger_to_wire(entries)
