"""Looking for many byte strings in much that was written or sent."""

import base64
import hashlib
from collections.abc import Iterable
from typing import Final

import numpy as np

from common.merkle import leaf

_WORD: Final = 8


def found(patterns: Iterable[bytes], haystack: bytes) -> list[bytes]:
    """
    Give the patterns that occur.

    Args:
        patterns: Byte strings; of those of eight bytes or more there may be many.
        haystack: Where they are looked for.

    Cost: eight passes over the haystack, and one for each pattern below eight bytes.
    """
    wanted = list(dict.fromkeys(patterns))
    starts = np.unique(
        np.array([_start(one) for one in wanted if len(one) >= _WORD], dtype=np.uint64)
    )
    seen: set[int] = set()
    for offset in range(_WORD if len(starts) else 0):
        whole = (len(haystack) - offset) // _WORD * _WORD
        words = np.frombuffer(haystack[offset : offset + max(0, whole)], dtype="<u8")
        places = np.minimum(np.searchsorted(starts, words), len(starts) - 1)
        seen.update(words[starts[places] == words].tolist())
    return [
        one
        for one in wanted
        if one and (len(one) < _WORD or _start(one) in seen) and one in haystack
    ]


def written(secret: bytes) -> list[bytes]:
    """Give the ways in which some bytes may be written: as they are, hexadecimal, base64."""
    return [secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"=")]


def hashed(secret: bytes) -> list[bytes]:
    """Give the ways in which a hash of some bytes may be written, or the first half of it."""
    return [
        way
        for digest in (hashlib.sha256(secret).digest(), leaf(secret))
        for way in (digest[:16], digest.hex()[:16].encode())
    ]


def _start(pattern: bytes) -> int:
    return int.from_bytes(pattern[:_WORD], "little")
