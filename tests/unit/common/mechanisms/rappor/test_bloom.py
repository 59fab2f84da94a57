import hashlib

import numpy as np
import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.rappor.bloom import (
    check_hashes,
    hash_bytes,
    hash_distribution,
    positions,
)


def test_candidates_hash_as_in_the_public_tools() -> None:
    """The cells, numbered from 1, are those of bin/hash_candidates_test.py [GRappor]."""
    cells = [
        [16 * cohort + place + 1 for cohort in range(4) for place in positions(text, cohort, 16, 2)]
        for text in (b"apple", b"banana", b"carrot")
    ]

    assert [
        [5, 1, 26, 26, 38, 34, 63, 62],
        [12, 14, 28, 24, 37, 34, 62, 49],
        [4, 12, 25, 21, 48, 38, 61, 54],
    ] == cells


def test_two_bytes_of_a_digest_are_read_from_the_lower_end() -> None:
    """For 2,048 bits the first byte of each pair is the least significant."""
    digest = hashlib.md5(b"\x00\x00\x01\x02abc", usedforsecurity=False).digest()
    by_hand = tuple((digest[2 * i] + 256 * digest[2 * i + 1]) % 2048 for i in range(8))

    assert by_hand == positions(b"abc", 0x102, 2048, 8)


def test_too_many_hashes_for_one_digest_are_refused() -> None:
    """A digest has enough bytes for 16 hashes of up to 256 bits, or 8 of more."""
    check_hashes(256, 16)
    check_hashes(264, 8)
    with pytest.raises(TaskError, match="hashes is 9; for a filter of 264 bits it must be at most"):
        check_hashes(264, 9)


@pytest.mark.parametrize("bits", [2, 16, 48, 100, 256, 320])
def test_hashes_select_bits_with_the_stated_probabilities(bits: int) -> None:
    """The distribution agrees with counting all values of a digest's bytes."""
    values = 256 ** hash_bytes(bits)
    distribution = np.bincount(np.arange(values) % bits) / values

    assert distribution.tolist() == hash_distribution(bits).tolist()
    assert 1.0 == pytest.approx(hash_distribution(bits).sum())
