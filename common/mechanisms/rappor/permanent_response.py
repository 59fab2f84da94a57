"""
RAPPOR's permanent response: noise that is drawn once for a person and a filter, and reused [EPK14].

It is derived, not stored: the same secret and bits give the same noise again. Bit i of a filter is
decided by byte i of a pseudorandom stream: if its upper seven bits are below f·128, the bit is
replaced by the byte's lowest bit. This matches two public clients bit for bit [GRappor]: the one in
C++, whose message has a prefix, and the one in Python, whose message is the filter alone. (The
client in Java hashes and derives differently.)

The secret removes all of this noise. It never leaves the device.
"""

import hmac
from typing import Final

import numpy as np
from numpy.typing import NDArray

Packed = NDArray[np.uint8]
"""Bits in bytes, least significant first, along the last axis."""

SCOPE_LABEL: Final = b"shuffledp v1 permanent response"
_COHORT_MESSAGE: Final = b""
"""The C++ client means a zero byte, but the C string ends at it."""
ENCODER_PREFIX: Final = b"\x01"
"""Precedes the encoder id and the filter in the C++ client's message."""
_BLOCK: Final = 32
"""Bytes of an HMAC-SHA256, which decides filters up to this width."""


def scope_secret(device_secret: bytes, scope: bytes) -> bytes:
    """
    Derive the secret of one scope from the device's permanent secret. Run by the user agent.

    HMAC-SHA256(device secret, label ‖ scope): permanent responses of different scopes are
    unlinkable.

    Args:
        device_secret: At least 32 random bytes, drawn once.
        scope: Identifies the tasks that share permanent responses, such as a population and a
            question.

    Returns:
        32 bytes.
    """
    return _hmac(device_secret, SCOPE_LABEL + scope)


def cohort_of(secret: bytes, cohorts: int, bits: int) -> int:
    """
    Return the cohort of a secret, as the C++ client does. Run by the user agent.

    The first four bytes of the stream of an empty message, least significant first, modulo m.

    Args:
        secret: Secret of the scope.
        cohorts: m, a power of two, so that all cohorts are equally likely.
        bits: k; filters wider than 32 bits use another stream.
    """
    return int.from_bytes(stream(secret, _COHORT_MESSAGE, bits)[:4], "little") & (cohorts - 1)


def filter_message(filter_bits: int, bits: int, prefix: bytes) -> bytes:
    """Return the message that a filter's noise is derived from: prefix and bits, big-endian."""
    width = 4 if bits <= _BLOCK else (bits + 7) // 8
    return prefix + filter_bits.to_bytes(width, "big")


def stream(secret: bytes, message: bytes, bits: int) -> bytes:
    """
    Derive a byte for every bit of a filter, and at least 32.

    Up to 32 bits by HMAC-SHA256; beyond, by HMAC-DRBG of SHA-256 without reseeding, whose seed is
    secret ‖ message [SP800-90A].
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
    Return the coins of permanent responses.

    Args:
        streams: A byte for each bit, shape (n, k).
        permanent_weight: f·128, 0 .. 127.

    Returns:
        The fair coins, and which bits they replace; each of shape (n, ⌈k/8⌉).
    """
    coins = np.packbits(streams & 1, axis=-1, bitorder="little")
    replaced = np.packbits(streams >> 1 < permanent_weight, axis=-1, bitorder="little")
    return coins, replaced


def respond(filters: Packed, streams: NDArray[np.uint8], permanent_weight: int) -> Packed:
    """
    Return the permanent responses to filters. Run by the user agent.

    Args:
        filters: Shape (n, ⌈k/8⌉).
        streams: Streams of the filters' messages, shape (n, k).
        permanent_weight: f·128.
    """
    coins, replaced = masks(streams, permanent_weight)
    responses: Packed = (filters & ~replaced) | (coins & replaced)
    return responses


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")
