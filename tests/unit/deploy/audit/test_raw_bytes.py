"""Searches: every pattern that is there is found, at whatever place, and no other."""

import base64
import hashlib

import numpy as np

from deploy.audit.raw_bytes import found, hashed, written


def test_patterns_are_found_wherever_they_stand() -> None:
    """Short ones and long ones, at every offset of eight, and at both ends."""
    rng = np.random.default_rng(1)
    there = [rng.bytes(length) for length in (3, 8, 9, 16, 50) for _ in range(20)]
    missing = [rng.bytes(16) for _ in range(500)]
    haystack = b"".join(rng.bytes(int(rng.integers(1, 30))) + one for one in there)

    assert there == found([*there, *missing], haystack)


def test_what_begins_alike_is_not_the_same() -> None:
    """Eight bytes in common are not enough."""
    assert [] == found([b"abcdefgh-one"], b"xxabcdefgh-other")
    assert [] == found([b"", b"abc"], b"")


def test_bytes_are_looked_for_in_every_way_they_may_be_written() -> None:
    """Raw, hexadecimal, base64; and by the beginning of their hash."""
    secret = bytes(range(16))
    digest = hashlib.sha256(secret).digest()

    assert [secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"=")] == written(secret)
    assert digest[:16] in hashed(secret)
    assert digest.hex()[:16].encode() in hashed(secret)
