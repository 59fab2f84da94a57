"""Client of the issuer of tokens, for its operator."""

from pathlib import Path
from typing import Self

from common.runtime.rpc import open_channel
from common.task.token_spec import TokenSpec
from common.wire.tasks import TOKENS
from deploy.clients.base import ServiceClient, read_token
from deploy.terminal.files import read_file
from protos.shuffledp.v1 import issuer_pb2, issuer_pb2_grpc


class IssuerClient(ServiceClient):
    """Client of an issuer, with its operator token."""

    _PARTY = "the issuer"
    _STUB = issuer_pb2_grpc.IssuerStub

    @classmethod
    def connect(cls, address: str, authority: Path | None, token_file: Path) -> Self:
        """Open a channel to host:port; without an authority, in plaintext, on loopback only."""
        trusted = None if authority is None else read_file(authority)
        return cls(open_channel(address, "issuer", trusted), address, read_token(token_file))

    async def create_key(self, end: int) -> TokenSpec:
        """Create a key that ends in second `end` since 1970."""
        request = issuer_pb2.CreateTokenKeyRequest(end=end)
        response = await self._call(self._stub.CreateTokenKey, request)
        return TOKENS.from_wire(response.tokens)
