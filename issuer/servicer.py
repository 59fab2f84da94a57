"""The issuer's gRPC methods: wire in, core, wire out."""

from dataclasses import dataclass

from shuffledp.common.crypto.signing import KeyUse, SigningIdentity, prove_key
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.common.wire.issuance import (
    TOKENS,
    bulk_issuance_from_wire,
    issuance_from_wire,
    key_terms_from_wire,
)
from shuffledp.issuer.core import Issuance
from shuffledp.protos.shuffledp.v1 import issuer_pb2, issuer_pb2_grpc


@dataclass
class IssuerServicer(issuer_pb2_grpc.IssuerServicer):
    """Serves devices and the operator; common/runtime/access.py lists who may call which method."""

    issuance: Issuance
    issuer_name: str
    identity: SigningIdentity

    async def CreateTokenKey(
        self, request: issuer_pb2.CreateTokenKeyRequest, _context: object
    ) -> issuer_pb2.CreateTokenKeyResponse:
        end, population = key_terms_from_wire(request)
        key = (await self.issuance.create_key(end, population)).der
        proof = prove_key(self.identity, KeyUse.TOKENS, self.issuer_name, key, end)
        tokens = TokenSpec(issuer=self.issuer_name, key=key, proof=proof)
        return issuer_pb2.CreateTokenKeyResponse(tokens=TOKENS.to_wire(tokens))

    async def IssueToken(
        self, request: issuer_pb2.IssueTokenRequest, _context: object
    ) -> issuer_pb2.IssueTokenResponse:
        signature = await self.issuance.issue(*issuance_from_wire(request))
        return issuer_pb2.IssueTokenResponse(blind_signature=signature)

    async def IssueTokens(
        self, request: issuer_pb2.IssueTokensRequest, _context: object
    ) -> issuer_pb2.IssueTokensResponse:
        signatures = await self.issuance.issue_bulk(bulk_issuance_from_wire(request))
        responses = [issuer_pb2.IssueTokenResponse(blind_signature=each) for each in signatures]
        return issuer_pb2.IssueTokensResponse(responses=responses)
