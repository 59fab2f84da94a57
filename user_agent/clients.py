"""Calls from the user agent to the shuffler and, for one-time tokens, to the issuer."""

from typing import Final, Protocol

import grpc

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.messages.inclusion_proof import InclusionProof
from shuffledp.common.runtime.rpc import SHORT_DEADLINE, reply
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.transparency.log import LogProof
from shuffledp.common.wire.batches import prefix_to_wire, proof_from_wire
from shuffledp.common.wire.issuance import signature_from_wire
from shuffledp.common.wire.submissions import receipt_from_wire
from shuffledp.common.wire.tasks import signed_task_from_wire
from shuffledp.common.wire.transparency import log_proof_from_wire
from shuffledp.protos.shuffledp.v1 import (
    issuer_pb2,
    issuer_pb2_grpc,
    shuffler_pb2,
    shuffler_pb2_grpc,
)

_SHUFFLER: Final = "the shuffler"
_ISSUER: Final = "the issuer"


class Shuffler(Protocol):
    """Interface of the shuffler to a user agent."""

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a published task, unverified."""

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """Submit an envelope with a token (empty for none); return the receipt, unverified."""

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Fetch a batch's commitment, with one bucket if a prefix is given; not verified."""


class RemoteShuffler(Shuffler):
    """The shuffler behind a gRPC channel. Every method raises the errors of `reply`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = shuffler_pb2_grpc.ShufflerStub(channel)

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        request = shuffler_pb2.FetchTaskRequest(task_digest=digest)
        response = await reply(self._stub.FetchTask(request, timeout=SHORT_DEADLINE), _SHUFFLER)
        return signed_task_from_wire(response.task)

    async def fetch_logged_task(
        self, digest: TaskDigest, log_size: int
    ) -> tuple[SignedTask, LogProof]:
        """Fetch a published task and its place in the log, unverified."""
        request = shuffler_pb2.FetchTaskRequest(task_digest=digest, log_size=log_size)
        response = await reply(self._stub.FetchTask(request, timeout=SHORT_DEADLINE), _SHUFFLER)
        return signed_task_from_wire(response.task), log_proof_from_wire(response)

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        request = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope, token=token)
        response = await reply(self._stub.Submit(request, timeout=SHORT_DEADLINE), _SHUFFLER)
        return receipt_from_wire(response)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        request = prefix_to_wire(digest, prefix)
        response = await reply(self._stub.GetInclusion(request, timeout=SHORT_DEADLINE), _SHUFFLER)
        return proof_from_wire(response)


class Issuer(Protocol):
    """Interface of the issuer to a user agent."""

    async def issue(self, key_id: bytes, blinded: bytes, credential: bytes) -> bytes:
        """
        Fetch the blind signature of a blinded message, unverified.

        Safe to repeat: the issuer signs the same message again.
        """


class RemoteIssuer(Issuer):
    """The issuer behind a gRPC channel. Every method raises the errors of `reply`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = issuer_pb2_grpc.IssuerStub(channel)

    async def issue(self, key_id: bytes, blinded: bytes, credential: bytes) -> bytes:
        request = issuer_pb2.IssueTokenRequest(
            key_id=key_id, blinded=blinded, credential=credential
        )
        response = await reply(self._stub.IssueToken(request, timeout=SHORT_DEADLINE), _ISSUER)
        return signature_from_wire(response)
