"""The issuer's gRPC methods: wire in, core, wire out."""

from common.wire.issuance import end_from_wire, issuance_from_wire, token_key_to_wire
from issuer.issuance import Issuance
from protos.shuffledp.v1 import issuer_pb2, issuer_pb2_grpc


class IssuerServicer(issuer_pb2_grpc.IssuerServicer):
    """Serves devices and the operator; common/runtime/access.py lists who may call which method."""

    def __init__(self, issuance: Issuance, issuer_name: str) -> None:
        self._issuance = issuance
        self._issuer_name = issuer_name

    async def CreateTokenKey(
        self, request: issuer_pb2.CreateTokenKeyRequest, _context: object
    ) -> issuer_pb2.CreateTokenKeyResponse:
        """Create a token key. For the operator."""
        key = await self._issuance.create_key(end_from_wire(request))
        return token_key_to_wire(key, self._issuer_name)

    async def IssueToken(
        self, request: issuer_pb2.IssueTokenRequest, _context: object
    ) -> issuer_pb2.IssueTokenResponse:
        """Sign a person's blinded message."""
        signature = await self._issuance.issue(*issuance_from_wire(request))
        return issuer_pb2.IssueTokenResponse(blind_signature=signature)
