"""The gRPC methods of a party that receives batches: wire in, core, wire out."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from shuffledp.common.errors import ShuffleDpError
from shuffledp.common.receiving.receiver import Receiver
from shuffledp.common.runtime import access, logs
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire import batches, tasks
from shuffledp.common.wire.fields import digest_from_wire
from shuffledp.protos.shuffledp.v1 import analyzer_pb2


@dataclass
class DeliveryServicer:
    """Receives batches; common/runtime/access.py lists from whom."""

    staging: Receiver[Any]

    async def GetTask(
        self, request: analyzer_pb2.GetTaskRequest, _context: object
    ) -> analyzer_pb2.GetTaskResponse:
        """Return a published task."""
        signed = await self.staging.get_task(digest_from_wire(request.task_digest))
        return analyzer_pb2.GetTaskResponse(task=tasks.signed_task_to_wire(signed))

    async def BeginDelivery(
        self, request: analyzer_pb2.BeginDeliveryRequest, _context: object
    ) -> analyzer_pb2.BeginDeliveryResponse:
        """Begin to receive a permuted batch in parts, or continue."""
        manifest, n_parts = batches.delivery_from_wire(request)
        async with self._checked(manifest.task_digest):
            arrived, staged = await self.staging.begin(manifest, n_parts)
        return analyzer_pb2.BeginDeliveryResponse(arrived=arrived, staged=staged)

    async def DeliverPart(
        self,
        request_iterator: AsyncIterator[analyzer_pb2.DeliverPartRequest],
        context: "grpc.aio.ServicerContext[Any, Any]",
    ) -> analyzer_pb2.DeliverPartResponse:
        """Receive a part; ask for its reports once its header is accepted."""
        first = await anext(request_iterator, analyzer_pb2.DeliverPartRequest())
        part = batches.part_from_wire(first)
        chunks = (batches.chunk_from_wire(message) async for message in request_iterator)
        async with self._checked(part.task_digest):
            ask_for_reports = partial(context.send_initial_metadata, batches.REPORTS_WANTED)
            await self.staging.receive(part, chunks, ask_for_reports)
        return analyzer_pb2.DeliverPartResponse()

    async def FinishDelivery(
        self, request: analyzer_pb2.FinishDeliveryRequest, _context: object
    ) -> analyzer_pb2.FinishDeliveryResponse:
        """Commit to the whole batch, and start to use it."""
        digest = digest_from_wire(request.task_digest)
        async with self._checked(digest):
            signed = await self.staging.finish_delivery(digest)
        return analyzer_pb2.FinishDeliveryResponse(commitment=batches.commitment_to_wire(signed))

    @asynccontextmanager
    async def _checked(self, digest: TaskDigest) -> AsyncGenerator[None]:
        """Check that the caller may deliver a task's batch, and log what is refused."""
        try:
            await self.staging.check_sender(digest, access.CALLER_NAMES.get())
            yield
        except ShuffleDpError as error:
            fields: dict[logs.Field, str] = {"error": type(error).__name__}
            logs.event("delivery refused", {**fields, "task_digest": digest.hex()}, level="WARNING")
            raise
