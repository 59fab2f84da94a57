"""Get one-time tokens from the issuer."""

from typing import Final, Protocol

import grpc

from common.crypto.privacy_tokens import PendingToken
from common.runtime.rpc import SHORT_DEADLINE, reply
from common.wire.issuance import signature_from_wire
from protos.shuffledp.v1 import issuer_pb2, issuer_pb2_grpc

_PEER: Final = "the issuer"


class Issuer(Protocol):
    """Interface of the issuer to a user agent."""

    async def issue(self, key_id: bytes, blinded: bytes, credential: bytes) -> bytes:
        """Fetch the blind signature of a blinded message; the same message may be sent again."""


async def request_token(issuer: Issuer, pending: PendingToken, credential: bytes) -> bytes:
    """
    Get a token; safe to repeat, since the issuer signs the same request again.

    Raises ProofError if the issuer's signature is wrong, and the errors of `reply`.
    """
    signature = await issuer.issue(pending.key.key_id, pending.blinded(), credential)
    return pending.finalize(signature)


class RemoteIssuer:
    """The issuer behind a gRPC channel. Every method raises the errors of `reply`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = issuer_pb2_grpc.IssuerStub(channel)

    async def issue(self, key_id: bytes, blinded: bytes, credential: bytes) -> bytes:
        """Fetch a blind signature, unverified."""
        request = issuer_pb2.IssueTokenRequest(
            key_id=key_id, blinded=blinded, credential=credential
        )
        response = await reply(self._stub.IssueToken(request, timeout=SHORT_DEADLINE), _PEER)
        return signature_from_wire(response)
