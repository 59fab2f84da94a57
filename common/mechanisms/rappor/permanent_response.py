"""
RAPPOR's permanent response: noise that is drawn once for a person and a filter, and kept [EPK14].

It is not stored but derived: the same secret and the same bits give the same noise again. Bit i of
a filter is decided by byte i of a pseudorandom stream: where its upper seven bits are below f·128
the bit is replaced by the byte's lowest bit, and else it stays. This is bit for bit what the public
clients do [GRappor]: the one in C++, whose message has a prefix, and the one in Python, whose
message is the filter alone. (The one in Java hashes and derives otherwise.)

Whoever has the secret can take all of this noise off again. It never leaves the device.
"""

import hmac
from typing import Final

import numpy as np
from numpy.typing import NDArray

Packed = NDArray[np.uint8]
"""Bits in bytes, least significant first, along the last axis."""

SCOPE_LABEL: Final = b"shuffledp v1 permanent response"
BARE: Final = b""
"""Prefix of the Python client's message."""
_COHORT_MESSAGE: Final = b""
"""The C++ client means a zero byte, but a C string ends at it."""
_PREFIX: Final = b"\x01"
_BLOCK: Final = 32
"""Bytes of an HMAC-SHA256, and so the widest filter that one decides."""


def scope_secret(device_secret: bytes, scope: bytes) -> bytes:
    """
    Derive the secret of one scope from the one that a device keeps for good. Run by the user agent.

    HMAC-SHA256(device secret, label ‖ scope): scopes tell nothing of each other, so that permanent
    responses of one cannot be linked to those of another.

    Args:
        device_secret: At least 32 random bytes, made once.
        scope: What shares its permanent responses, such as the name of a population and a question.

    Returns:
        32 bytes.
    """
    return _hmac(device_secret, SCOPE_LABEL + scope)


def encoder_prefix(encoder_id: bytes) -> bytes:
    """Give the prefix of the C++ client's message; the id keeps two questions' noise apart."""
    return _PREFIX + encoder_id


def cohort_of(secret: bytes, cohorts: int, bits: int) -> int:
    """
    Give the cohort that a secret belongs to, as the C++ client does. Run by the user agent.

    The first four bytes of the stream of an empty message, least significant first, modulo m.

    Args:
        secret: Of the scope.
        cohorts: m, a power of two: every cohort is as likely.
        bits: k; what is wider than 32 has another stream.
    """
    return int.from_bytes(stream(secret, _COHORT_MESSAGE, bits)[:4], "little") & (cohorts - 1)


def filter_message(filter_bits: int, bits: int, prefix: bytes) -> bytes:
    """Write down what the noise of a filter is derived from: a prefix, and the bits big-endian."""
    width = 4 if bits <= _BLOCK else (bits + 7) // 8
    return prefix + filter_bits.to_bytes(width, "big")


def stream(secret: bytes, message: bytes, bits: int) -> bytes:
    """
    Derive a byte for every bit of a filter, and 32 at least.

    Up to 32 bits HMAC-SHA256, beyond HMAC-DRBG of SHA-256 without reseeding, whose seed is secret ‖
    message [SP800-90A].
    """
    if bits <= _BLOCK:
        return _hmac(secret, message)
    seed = secret + message
    key, value = bytes(_BLOCK), b"\x01" * _BLOCK
    for separator in (b"\x00", b"\x01"):
        key = _hmac(key, value + separator + seed)
        value = _hmac(key, value)
    made = b""
    while len(made) < bits:
        value = _hmac(key, value)
        made += value
    return made[:bits]


def masks(streams: NDArray[np.uint8], permanent_weight: int) -> tuple[Packed, Packed]:
    """
    Give the coins of permanent responses.

    Args:
        streams: A byte a bit, shape (n, k).
        permanent_weight: f·128, 0 .. 127.

    Returns:
        The fair coins, and which bits they replace; each shape (n, ⌈k/8⌉).
    """
    coins = np.packbits(streams & 1, axis=-1, bitorder="little")
    replaced = np.packbits(streams >> 1 < permanent_weight, axis=-1, bitorder="little")
    return coins, replaced


def respond(filters: Packed, streams: NDArray[np.uint8], permanent_weight: int) -> Packed:
    """
    Give the permanent responses to filters. Run by the user agent.

    Args:
        filters: Shape (n, ⌈k/8⌉).
        streams: Those of the filters' own messages, shape (n, k).
        permanent_weight: f·128.
    """
    coins, replaced = masks(streams, permanent_weight)
    responses: Packed = (filters & ~replaced) | (coins & replaced)
    return responses


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")
