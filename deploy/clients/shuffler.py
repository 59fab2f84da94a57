"""Client of the shuffler, for its operator and for public calls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from shuffledp.common.errors import PeerRefusalError, UnknownTaskError
from shuffledp.common.messages.batch import BatchProgress, BatchState, BatchStatus
from shuffledp.common.runtime import rpc, validation
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.batches import dropped_from_wire, progress_from_wire, status_from_wire
from shuffledp.deploy.clients.base import ServiceClient
from shuffledp.protos.shuffledp.v1 import relay_pb2_grpc, shuffler_pb2, shuffler_pb2_grpc
from shuffledp.user_agent.clients import RemoteShuffler


@asynccontextmanager
async def shuffler_at(address: str, authority: Path | None) -> AsyncIterator[RemoteShuffler]:
    """Open a new connection to a shuffler, as a device does, without a token."""
    trusted = None if authority is None else validation.read_file(authority)
    async with rpc.open_channel(address, "shuffler", trusted) as channel:
        yield RemoteShuffler(channel)


class ShufflerClient(ServiceClient):
    """Client of a shuffler, with or without its operator token."""

    _PARTY = "shuffler"
    _STUB: ClassVar[Any] = shuffler_pb2_grpc.ShufflerStub

    async def close_batch(self, digest: TaskDigest) -> None:
        """Close a batch of at least n_min users before its deadline; safe to retry."""
        await self._call(self._stub.CloseBatch, shuffler_pb2.CloseBatchRequest(task_digest=digest))

    async def drop_batch(self, digest: TaskDigest) -> BatchState:
        """Erase a closed batch that is not delivered; return its last state; safe to retry."""
        request = shuffler_pb2.DropBatchRequest(task_digest=digest)
        return dropped_from_wire(await self._call(self._stub.DropBatch, request))

    async def progress(self, digest: TaskDigest) -> BatchProgress:
        """Return a batch's state and counts once a device has fetched its task; needs the token."""
        request = shuffler_pb2.GetBatchProgressRequest(task_digest=digest)
        return progress_from_wire(await self._call(self._stub.GetBatchProgress, request))

    async def status_or_none(self, digest: TaskDigest) -> BatchStatus | None:
        """Return the public status of a batch, or None if no device has fetched its task."""
        request = shuffler_pb2.GetBatchStatusRequest(task_digest=digest)
        try:
            return status_from_wire(await self._call(self._stub.GetBatchStatus, request))
        except PeerRefusalError as error:
            if error.status == UnknownTaskError.status:
                return None
            raise


class RelayClient(ShufflerClient):
    """Client of the second shuffler of tasks with two, with its operator token and certificate."""

    _PARTY = "relay"
    _STUB = relay_pb2_grpc.RelayStub
    _CERTIFIED = True
