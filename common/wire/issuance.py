"""Convert the issuer's messages between protocol buffers and values."""

from collections.abc import Sequence
from typing import Final

from shuffledp.common import errors, limits
from shuffledp.common.crypto.privacy_tokens import KEY_ID_BYTES, MODULUS_BYTES
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.common.wire.fields import Codec
from shuffledp.protos.shuffledp.v1 import issuer_pb2, task_pb2

MAX_CREDENTIAL_BYTES: Final = 8192
MAX_BULK_TOKENS: Final = 256
TOKENS: Final = Codec(TokenSpec, task_pb2.TokenSpec)
"""An issuer's token key."""


def issuance_from_wire(message: issuer_pb2.IssueTokenRequest) -> tuple[bytes, bytes, bytes]:
    """Parse a request for a token: key id, blinded message and credential."""
    return (
        limits.parse_fixed("key_id", message.key_id, KEY_ID_BYTES),
        limits.parse_fixed("blinded", message.blinded, MODULUS_BYTES),
        limits.parse_bounded("credential", message.credential, MAX_CREDENTIAL_BYTES),
    )


def signature_from_wire(message: issuer_pb2.IssueTokenResponse) -> bytes:
    """Parse a blind signature, which `PendingToken.finalize` verifies."""
    return limits.parse_fixed("blind_signature", message.blind_signature, MODULUS_BYTES)


def bulk_issuance_from_wire(
    message: issuer_pb2.IssueTokensRequest,
) -> Sequence[tuple[bytes, bytes, bytes]]:
    """Parse requests for tokens; see `issuance_from_wire`."""
    limits.parse_positive("the number of requests", len(message.requests), MAX_BULK_TOKENS)
    return list(map(issuance_from_wire, message.requests))


def signatures_from_wire(message: issuer_pb2.IssueTokensResponse) -> Sequence[bytes]:
    """Parse blind signatures; see `signature_from_wire`."""
    limits.parse_positive("the number of signatures", len(message.responses), MAX_BULK_TOKENS)
    return list(map(signature_from_wire, message.responses))


def key_terms_from_wire(message: issuer_pb2.CreateTokenKeyRequest) -> tuple[int, str]:
    """Parse a new token key's end, in seconds since 1970 UTC, and its task's population."""
    name = limits.parse_bounded("population", message.population, limits.MAX_POPULATION_CHARACTERS)
    if not (name.isascii() and name.isprintable()):
        raise errors.WireError("population must be printable ASCII text")
    return limits.parse_positive("end", message.end, limits.MAX_UNIX_TIME), name
