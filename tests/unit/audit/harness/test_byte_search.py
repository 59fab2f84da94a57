"""Searching large files for many byte strings."""

import base64

import numpy as np
import pytest

from shuffledp.audit.harness.byte_search import (
    encodings,
    hash_encodings,
    kinds_found,
    start_encodings,
)


@pytest.mark.parametrize("offset", [0, 3, 8])
@pytest.mark.parametrize("length", [3, 8, 13, 40])
def test_a_pattern_is_found_at_every_offset(offset: int, length: int) -> None:
    """Long patterns are found by their first eight bytes, short ones directly."""
    rng = np.random.default_rng(1)
    pattern, rest = rng.bytes(length), rng.bytes(1000)
    patterns = {"planted": [b"not there", pattern], "other": [rng.bytes(16) for _ in range(50)]}

    assert {"planted"} == kinds_found(patterns, rest[:offset] + pattern + rest)
    assert set() == kinds_found(patterns, rest[:offset] + pattern[:-1] + rest)


def test_encodings_match_encoded_secrets() -> None:
    """Raw, in hexadecimal and in base64; start encodings do not depend on what follows."""
    secret = bytes(range(60))
    texts = (secret, secret.hex().encode(), base64.b64encode(secret))

    for text, beginning in zip(texts, start_encodings(secret), strict=True):
        assert text.startswith(beginning)
    assert [text.rstrip(b"=") for text in texts] == encodings(secret)
    assert 4 == len(set(hash_encodings(secret)))
