"""Convert the issuer's messages between protocol buffers and values."""

from collections.abc import Sequence
from typing import Final

from shuffledp.common.crypto.privacy_tokens import KEY_ID_BYTES, MODULUS_BYTES
from shuffledp.common.errors import WireError
from shuffledp.common.limits import (
    MAX_POPULATION_CHARACTERS,
    MAX_UNIX_TIME,
    parse_bounded,
    parse_fixed,
    parse_positive,
)
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
        parse_fixed("key_id", message.key_id, KEY_ID_BYTES),
        parse_fixed("blinded", message.blinded, MODULUS_BYTES),
        parse_bounded("credential", message.credential, MAX_CREDENTIAL_BYTES),
    )


def signature_from_wire(message: issuer_pb2.IssueTokenResponse) -> bytes:
    """Parse a blind signature, which `PendingToken.finalize` verifies."""
    return parse_fixed("blind_signature", message.blind_signature, MODULUS_BYTES)


def bulk_issuance_from_wire(
    message: issuer_pb2.IssueTokensRequest,
) -> Sequence[tuple[bytes, bytes, bytes]]:
    """Parse requests for tokens; see `issuance_from_wire`."""
    parse_positive("the number of requests", len(message.requests), MAX_BULK_TOKENS)
    return list(map(issuance_from_wire, message.requests))


def signatures_from_wire(message: issuer_pb2.IssueTokensResponse) -> Sequence[bytes]:
    """Parse blind signatures; see `signature_from_wire`."""
    parse_positive("the number of signatures", len(message.responses), MAX_BULK_TOKENS)
    return list(map(signature_from_wire, message.responses))


def key_terms_from_wire(message: issuer_pb2.CreateTokenKeyRequest) -> tuple[int, str]:
    """Parse a new token key's end, in seconds since 1970 UTC, and its task's population."""
    name = parse_bounded("population", message.population, MAX_POPULATION_CHARACTERS)
    if not (name.isascii() and name.isprintable()):
        raise WireError("population must be printable ASCII text")
    return parse_positive("end", message.end, MAX_UNIX_TIME), name
