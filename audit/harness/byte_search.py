"""Search for many byte strings in large files and messages."""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from shuffledp.common.messages.inclusion_proof import leaf

_WORD_BYTES: Final = 8
_FILTER_BITS: Final = np.uint64(0xFFFFF)
"""Bits of a word that index the filter, which rules out nearly every word."""
_START_BYTES: Final = 18
"""Leading bytes to search for; a multiple of three, so their base64 is independent of the rest."""


def kinds_found(patterns: Mapping[str, Iterable[bytes]], haystack: bytes) -> set[str]:
    """
    Return the kinds (keys of `patterns`) with a byte string that occurs in the haystack.

    Cost: eight passes over the haystack, and one per pattern that is short or may occur.
    """
    kinds = {pattern: kind for kind, some in patterns.items() for pattern in some if pattern}
    long = [pattern for pattern in kinds if len(pattern) >= _WORD_BYTES]
    seen = _words_found(np.unique(np.array([*map(_word, long)], dtype=np.uint64)), haystack)
    return {
        kind
        for pattern, kind in kinds.items()
        if (len(pattern) < _WORD_BYTES or _word(pattern) in seen) and pattern in haystack
    }


def _words_found(starts: np.ndarray, haystack: bytes) -> set[int]:
    """Return those 8-byte words of `starts` that occur in the haystack, at any offset."""
    likely = np.zeros(_FILTER_BITS + 1, dtype=np.bool_)
    likely[starts & _FILTER_BITS] = True
    seen: set[int] = set()
    for offset in range(min(_WORD_BYTES, len(haystack)) if len(starts) else 0):
        count = (len(haystack) - offset) // _WORD_BYTES
        words = np.frombuffer(haystack, dtype="<u8", count=count, offset=offset)
        seen.update(np.intersect1d(words[likely[words & _FILTER_BITS]], starts).tolist())
    return seen


def _word(pattern: bytes) -> int:
    return int.from_bytes(pattern[:_WORD_BYTES], "little")


def words(content: Iterable[bytes], known: bytes = b"") -> set[bytes]:
    """
    Return all strings of 8 bytes, except those that are half zeros, as are common in databases.

    A `known` string is left out together with the strings that cross its ends, which may agree in
    all but a byte. Apart from these, a million strings share one with a million others by chance
    with probability 10^12 / 2^64.
    """
    if known:
        content = [each.replace(known, bytes(_WORD_BYTES)) for each in content]
    found = {
        each[start : start + _WORD_BYTES]
        for each in content
        for start in range(len(each) - _WORD_BYTES + 1)
    }
    return {word for word in found if word.count(0) < _WORD_BYTES // 2}


def encodings(secret: bytes) -> list[bytes]:
    """Return encodings of a byte string: raw, hexadecimal, and base64 without padding."""
    return [secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"=")]


def start_encodings(sealed: bytes) -> list[bytes]:
    """Return encodings of the first 18 bytes of a longer byte string."""
    return encodings(sealed[:_START_BYTES])


def hash_encodings(secret: bytes) -> list[bytes]:
    """Return the starts of a byte string's SHA-256 and Merkle leaf hash, raw and in hexadecimal."""
    return [
        encoded
        for digest in (hashlib.sha256(secret).digest(), leaf(secret))
        for encoded in (digest[:16], digest.hex()[:16].encode())
    ]
