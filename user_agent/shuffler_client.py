"""The calls that a user agent makes: all of them to the shuffler."""

from typing import Final, Protocol

import grpc

from common.crypto.signing import SignedTask
from common.messages.inclusion_proof import InclusionProof
from common.runtime.rpc import SHORT_DEADLINE, reply
from common.task_digest import TaskDigest
from common.wire.evidence import prefix_to_wire, proof_from_wire
from common.wire.submissions import receipt_from_wire
from common.wire.tasks import signed_task_from_wire
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc

_WHOM: Final = "the shuffler"


class Shuffler(Protocol):
    """What a user agent needs of a shuffler."""

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a published task."""

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """Submit with a token or an empty one; when the receipt returns, it is durably stored."""

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Fetch the signed commitment to a task's batch, and a bucket of it if one is named."""


class DeviceClient:
    """A device's calls to the shuffler at the other end of a channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = shuffler_pb2_grpc.ShufflerStub(channel)

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """See Shuffler."""
        request = shuffler_pb2.FetchTaskRequest(task_digest=digest)
        response = await reply(self._stub.FetchTask(request, timeout=SHORT_DEADLINE), _WHOM)
        return signed_task_from_wire(response.task)

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """See Shuffler."""
        request = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope, token=token)
        response = await reply(self._stub.Submit(request, timeout=SHORT_DEADLINE), _WHOM)
        return receipt_from_wire(response)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """See Shuffler."""
        request = prefix_to_wire(digest, prefix)
        answer = await reply(self._stub.GetInclusion(request, timeout=SHORT_DEADLINE), _WHOM)
        return proof_from_wire(answer)
