"""The checking witness's gRPC methods: wire in, checks, wire out."""

from dataclasses import dataclass

from shuffledp.common.runtime.witness_service import CosignedHead
from shuffledp.common.wire.added_entries import growth_from_wire
from shuffledp.common.wire.tasks import signed_task_from_wire
from shuffledp.protos.shuffledp.v1 import log_pb2, log_pb2_grpc
from shuffledp.witness.checking.task_checks import TaskChecks


@dataclass
class CheckingServicer(log_pb2_grpc.CheckingWitnessServicer):
    """Answers one analyzer; anyone may send what it signed."""

    head: CosignedHead
    tasks: TaskChecks

    async def AddEntries(
        self, request: log_pb2.AddEntriesRequest, _context: object
    ) -> log_pb2.AddCheckpointResponse:
        """
        Cosign a checkpoint whose new entries are all here and true, or return the last one's size.

        A false task stays in the log, so that no later checkpoint of it can be cosigned either.
        """
        growth = growth_from_wire(request)
        checks = map(self.tasks.check, growth.signed_tasks())
        return await self.head.cosign(growth.checkpoint, growth.old_size, growth.verify, checks)

    async def CheckTask(
        self, request: log_pb2.CheckTaskRequest, _context: object
    ) -> log_pb2.CheckTaskResponse:
        """Check a task before it enters the log."""
        await self.tasks.check(signed_task_from_wire(request.task))
        return log_pb2.CheckTaskResponse()
