"""
The Bloom filter bits of a text in a cohort [EPK14], as in RAPPOR's public clients [GRappor].

The digest is MD5 of the cohort (four bytes, big-endian) and the text. Privacy does not rest on MD5,
which only spreads texts over bits, but holds for any filter.
"""

import hashlib
from typing import Final

import numpy as np

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.base import Vector

_DIGEST_BYTES: Final = 16
_COHORT_BYTES: Final = 4


def check_hashes(bits: int, hashes: int) -> None:
    """Check that one digest has enough bytes for all hashes, or raise TaskError."""
    most = _DIGEST_BYTES // hash_bytes(bits)
    if hashes > most:
        raise TaskError(
            f"hashes is {hashes}; for a filter of {bits} bits it must be at most {most}"
        )


def hash_bytes(bits: int) -> int:
    """Return the number of digest bytes that select a bit: 1 up to 256 bits, 2 up to 65,536."""
    return ((bits - 1).bit_length() - 1) // 8 + 1 if bits > 1 else 1


def positions(text: bytes, cohort: int, bits: int, hashes: int) -> tuple[int, ...]:
    """
    Return the bits that a text sets, one per hash; two hashes may select the same bit.

    Hash i is the i-th group of `hash_bytes` digest bytes, little-endian, modulo k.

    The text is UTF-8, or any bytes; the cohort is below 2^32; the filter has `bits` bits k and at
    most as many hashes as `check_hashes` allows.
    """
    width = hash_bytes(bits)
    message = cohort.to_bytes(_COHORT_BYTES, "big") + text
    digest = hashlib.new("md5", message, usedforsecurity=False).digest()
    return tuple(
        int.from_bytes(digest[start : start + width], "little") % bits
        for start in range(0, hashes * width, width)
    )


def hash_distribution(bits: int) -> Vector:
    """
    Return the probability that one hash of a random text selects each of k bits, shape (k,).

    1/k if k is a power of two; otherwise the first bits are slightly more likely.
    """
    values = 256 ** hash_bytes(bits)
    whole, rest = divmod(values, bits)
    return np.asarray((whole + (np.arange(bits) < rest)) / values)
