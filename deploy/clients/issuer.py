"""Client of the issuer of tokens, for operators."""

from collections.abc import Sequence

from common.runtime.rpc import LONG_DEADLINE
from common.task.token_spec import TokenSpec
from common.wire.issuance import TOKENS, signatures_from_wire
from deploy.clients.base import ServiceClient
from protos.shuffledp.v1 import issuer_pb2, issuer_pb2_grpc


class IssuerClient(ServiceClient):
    """Client of an issuer, with its operator token, which tokens do not need."""

    _PARTY = "issuer"
    _STUB = issuer_pb2_grpc.IssuerStub

    async def create_key(self, end: int) -> TokenSpec:
        """Create a key that ends in second `end` since 1970."""
        request = issuer_pb2.CreateTokenKeyRequest(end=end)
        response = await self._call(self._stub.CreateTokenKey, request)
        return TOKENS.from_wire(response.tokens)

    async def issue(self, asked: Sequence[tuple[bytes, bytes, bytes]]) -> Sequence[bytes]:
        """Fetch blind signatures, unverified, by key id, blinded message and credential."""
        request = issuer_pb2.IssueTokensRequest()
        for key_id, blinded, credential in asked:
            request.requests.add(key_id=key_id, blinded=blinded, credential=credential)
        return signatures_from_wire(
            await self._call(self._stub.IssueTokens, request, LONG_DEADLINE)
        )
