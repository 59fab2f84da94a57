"""Looking for many byte strings in much that was written or sent."""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from common.crypto.merkle import leaf

_WORD: Final = 8
_SIEVE: Final = np.uint64(0xFFFFF)
"""Bits of a word by which nearly all that do not occur are left out at once."""
_BEGINNING: Final = 18
"""Bytes, a multiple of three: what follows does not change how they are written in base64."""


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
    likely = np.zeros(_SIEVE + 1, dtype=np.bool_)
    likely[starts & _SIEVE] = True
    seen: set[int] = set()
    for offset in range(_WORD if len(starts) else 0):
        count = max(0, len(haystack) - offset) // _WORD
        if not count:
            break
        words = np.frombuffer(haystack, dtype="<u8", count=count, offset=offset)
        words = words[likely[words & _SIEVE]]
        places = np.minimum(np.searchsorted(starts, words), len(starts) - 1)
        seen.update(words[starts[places] == words].tolist())
    return [
        one
        for one in wanted
        if one and (len(one) < _WORD or _start(one) in seen) and one in haystack
    ]


def kinds_found(patterns: Mapping[str, Iterable[bytes]], haystack: bytes) -> set[str]:
    """
    Give the kinds of patterns of which one occurs.

    Args:
        patterns: Byte strings by their kind.
        haystack: Where they are looked for, all at once.
    """
    kinds: dict[bytes, str] = {one: kind for kind, ones in patterns.items() for one in ones}
    return {kinds[one] for one in found(kinds, haystack)}


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


def first_bytes(sealed: bytes) -> list[bytes]:
    """Give the ways in which the beginning of something long may be written."""
    return written(sealed[:_BEGINNING])


def _start(pattern: bytes) -> int:
    return int.from_bytes(pattern[:_WORD], "little")


def pieces(together: bytes, size: int) -> list[bytes]:
    """Take apart what stands one after the other."""
    return [together[start : start + size] for start in range(0, len(together), size)]


def changed(content: bytes, place: int) -> bytes:
    """Turn one bit over."""
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
