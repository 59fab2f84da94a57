"""The calls that a user agent makes: all of them to the shuffler."""

from typing import Protocol

import grpc

from common.runtime.rpc import SHORT_DEADLINE, reply
from common.signing import SignedTask
from common.task_digest import TaskDigest
from common.wire import signed_task_from_wire
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc


class Shuffler(Protocol):
    """What a user agent needs of a shuffler."""

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a published task."""

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> None:
        """Submit, with a token or an empty one; when it returns, it is durably stored."""


class ShufflerClient:
    """A shuffler at the other end of a channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = shuffler_pb2_grpc.ShufflerStub(channel)

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a published task."""
        request = shuffler_pb2.FetchTaskRequest(task_digest=digest)
        response = await reply(self._stub.FetchTask(request, timeout=SHORT_DEADLINE))
        return signed_task_from_wire(response.task)

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> None:
        """Submit, with a token or an empty one; when it returns, it is durably stored."""
        request = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope, token=token)
        await reply(self._stub.Submit(request, timeout=SHORT_DEADLINE))
