"""Client of the issuer of tokens, for its operator."""

from common.task.token_spec import TokenSpec
from common.wire.tasks import TOKENS
from deploy.clients.base import ServiceClient
from protos.shuffledp.v1 import issuer_pb2, issuer_pb2_grpc


class IssuerClient(ServiceClient):
    """Client of an issuer, with its operator token."""

    _PARTY = "issuer"
    _STUB = issuer_pb2_grpc.IssuerStub

    async def create_key(self, end: int) -> TokenSpec:
        """Create a key that ends in second `end` since 1970."""
        request = issuer_pb2.CreateTokenKeyRequest(end=end)
        response = await self._call(self._stub.CreateTokenKey, request)
        return TOKENS.from_wire(response.tokens)
