"""
RAPPOR's permanent response: noise drawn once per user and filter, and reused [EPK14].

The noise is derived, not stored: the same secret and bits give the same noise again. Byte i of a
pseudorandom stream decides bit i of the filter: if its upper seven bits are below f·128, its lowest
bit replaces the filter's bit. This matches two public clients bit for bit [GRappor]: the one in
C++, whose message has a prefix, and the one in Python, whose message is the filter alone. (The
client in Java hashes and derives differently.)

Anyone who knows the secret can remove this noise; the secret never leaves the device.
"""

import hmac
from typing import Final

import numpy as np
from numpy.typing import NDArray

Packed = NDArray[np.uint8]
"""Bits in bytes, least significant first, along the last axis."""

SCOPE_LABEL: Final = b"shuffledp v1 permanent response"
_COHORT_MESSAGE: Final = b""
"""The C++ client's source states a zero byte, but as a C string that is empty."""
ENCODER_PREFIX: Final = b"\x01"
"""Precedes the encoder id and the filter in the C++ client's message."""
_BLOCK: Final = 32
"""Bytes of an HMAC-SHA256, and bits of the widest filter for which one suffices."""


def scope_secret(device_secret: bytes, scope: bytes) -> bytes:
    """
    Derive the secret of one scope from the device's permanent secret. Run by the user agent.

    HMAC-SHA256(device secret, label ‖ scope) makes permanent responses of different scopes
    unlinkable.

    The device secret has at least 32 random bytes, drawn once; the scope identifies the tasks that
    share permanent responses, such as a population and a question. Returns 32 bytes.
    """
    return _hmac(device_secret, SCOPE_LABEL + scope)


def cohort_of(secret: bytes, cohorts: int, bits: int) -> int:
    """
    Derive a user's cohort from the secret, like the C++ client. Run by the user agent.

    The cohort is the first four bytes of the stream of an empty message, little-endian, modulo m.

    `cohorts` is m, a power of two, so that all cohorts are equally likely. Filters of more than 32
    bits use another stream.
    """
    return int.from_bytes(stream(secret, _COHORT_MESSAGE, bits)[:4], "little") & (cohorts - 1)


def filter_message(filter_bits: int, bits: int, prefix: bytes) -> bytes:
    """Return the message from which a filter's noise is derived: prefix ‖ filter, big-endian."""
    width = 4 if bits <= _BLOCK else (bits + 7) // 8
    return prefix + filter_bits.to_bytes(width, "big")


def stream(secret: bytes, message: bytes, bits: int) -> bytes:
    """
    Derive one byte per bit of a filter, and at least 32 bytes in all.

    Uses HMAC-SHA256 up to 32 bits, and HMAC-DRBG with SHA-256 beyond, seeded with secret ‖ message
    and never reseeded [SP800-90A].
    """
    if bits <= _BLOCK:
        return _hmac(secret, message)
    seed = secret + message
    key, value = bytes(_BLOCK), b"\x01" * _BLOCK
    for separator in (b"\x00", b"\x01"):
        key = _hmac(key, value + separator + seed)
        value = _hmac(key, value)
    output = b""
    while len(output) < bits:
        value = _hmac(key, value)
        output += value
    return output[:bits]


def masks(streams: NDArray[np.uint8], permanent_weight: int) -> tuple[Packed, Packed]:
    """
    Return the packed coins of permanent responses, and a mask of the bits that they replace.

    `streams` has a byte for each bit, shape (n, k); permanent_weight is f·128, 0 .. 127. Each
    result has shape (n, ⌈k/8⌉).
    """
    coins = np.packbits(streams & 1, axis=-1, bitorder="little")
    replaced = np.packbits(streams >> 1 < permanent_weight, axis=-1, bitorder="little")
    return coins, replaced


def respond(filters: Packed, streams: NDArray[np.uint8], permanent_weight: int) -> Packed:
    """Return permanent responses to filters, (n, ⌈k/8⌉); see `masks`. Run by the user agent."""
    coins, replaced = masks(streams, permanent_weight)
    return (filters & ~replaced) | (coins & replaced)


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")
