"""Calls from the user agent to the shuffler."""

from typing import Final, Protocol

import grpc

from common.crypto.signing import SignedTask
from common.messages.inclusion_proof import InclusionProof
from common.runtime.rpc import SHORT_DEADLINE, reply
from common.task_digest import TaskDigest
from common.transparency.log_copy import LogProof
from common.wire.batches import prefix_to_wire, proof_from_wire
from common.wire.submissions import receipt_from_wire
from common.wire.tasks import signed_task_from_wire
from common.wire.transparency import log_proof_from_wire
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc

_PEER: Final = "the shuffler"


class Shuffler(Protocol):
    """Interface of the shuffler to a user agent."""

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a published task."""

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """Submit an envelope with a token (empty for none); return the shuffler's receipt."""

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Fetch the signed commitment to a task's batch, with one bucket if a prefix is given."""


class RemoteShuffler:
    """The shuffler behind a gRPC channel. Every method raises the errors of `reply`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = shuffler_pb2_grpc.ShufflerStub(channel)

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a published task, unverified."""
        request = shuffler_pb2.FetchTaskRequest(task_digest=digest)
        response = await reply(self._stub.FetchTask(request, timeout=SHORT_DEADLINE), _PEER)
        return signed_task_from_wire(response.task)

    async def fetch_logged_task(
        self, digest: TaskDigest, log_size: int
    ) -> tuple[SignedTask, LogProof]:
        """Fetch a published task and its place in the log, unverified."""
        request = shuffler_pb2.FetchTaskRequest(task_digest=digest, log_size=log_size)
        response = await reply(self._stub.FetchTask(request, timeout=SHORT_DEADLINE), _PEER)
        return signed_task_from_wire(response.task), log_proof_from_wire(response)

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """Submit an envelope; return the receipt, empty if the shuffler signs none."""
        request = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope, token=token)
        response = await reply(self._stub.Submit(request, timeout=SHORT_DEADLINE), _PEER)
        return receipt_from_wire(response)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Fetch a batch's commitment, with one bucket if a prefix is given; not verified."""
        request = prefix_to_wire(digest, prefix)
        response = await reply(self._stub.GetInclusion(request, timeout=SHORT_DEADLINE), _PEER)
        return proof_from_wire(response)
