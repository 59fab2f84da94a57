from typing import Any, Final

import numpy as np
import pytest
from scipy import stats

from shuffledp.common.mechanisms.hashing.string_hashing import StringHashing, bucket_of
from shuffledp.common.mechanisms.weights import ResponseWeights
from tests.support.tables import table
from tests.support.vectors import vectors

_NAMES: Final = ("Genève", "Genf", "Ginevra", "", "x" * 200)
_FALSE_ALARM: Final = 1e-9


def _hashing(
    buckets: int = 5, local_epsilon: float = 2.0, nonce: bytes = b"n" * 32
) -> StringHashing:
    return StringHashing(_NAMES, buckets, ResponseWeights.for_epsilon(local_epsilon), nonce)


@table("case", vectors("string_hashing"))
def test_hashes_match_the_vectors(case: dict[str, Any]) -> None:
    """They are by an independent program over Python's integers, and must never change."""
    digests = _hashing(nonce=bytes.fromhex(case["nonce"]))._digests([bytes.fromhex(case["string"])])
    seeds = np.array([int(case["seed"])], dtype=np.uint64)

    assert [case["bucket"]] == bucket_of(seeds, digests, case["buckets"]).tolist()


@table("strings", [(b"a", b"b"), (b"", b"\0"), (b"item 1", b"item 2"), (b"a", b"aa")])
@table("buckets", [2, 7])
def test_two_strings_are_hashed_independently(strings: tuple[bytes, bytes], buckets: int) -> None:
    """
    All pairs of buckets are equally likely, over 300,000 random seeds.

    Seed 2; over nonces each of eight tests would fail by chance with probability 1e-9.
    """
    seeds = np.random.default_rng(2).integers(0, 2**64 - 1, 300_000, dtype=np.uint64)
    digests = _hashing()._digests(strings)
    first, second = (bucket_of(seeds, digest, buckets).astype(int) for digest in digests)
    counts = np.bincount(first * buckets + second, minlength=buckets**2)

    assert stats.chisquare(counts).pvalue > _FALSE_ALARM


def test_support_counts_match_hashing_each_report() -> None:
    """They also match over several chunks of candidates and of reports."""
    names = tuple(f"candidate {number}" for number in range(700))
    mechanism = StringHashing(names, 3, ResponseWeights.for_epsilon(1.0), b"n" * 32)
    rng = np.random.default_rng(5)
    reports = np.concatenate(
        [mechanism.randomize(rng.integers(0, 700, 60), rng), mechanism.dummies(40, rng)]
    )
    expected = [
        int((bucket_of(reports["seed"], digest, 3) == reports["bucket"]).sum())
        for digest in mechanism._digests([name.encode() for name in names])
    ]

    assert expected == mechanism.tally(reports).tolist()
    many = np.concatenate([reports] * 400)
    assert [400 * count for count in expected] == mechanism.tally(many).tolist()


def test_every_bit_of_a_seed_is_drawn() -> None:
    """Each of 64 bits varies in 200 reports and dummies; by chance this fails with 1e-57."""
    mechanism, rng = _hashing(), np.random.default_rng(8)
    for reports in (mechanism.randomize(np.zeros(200, np.int64), rng), mechanism.dummies(200, rng)):
        assert 2**64 - 1 == np.bitwise_or.reduce(reports["seed"])
        assert 0 == np.bitwise_and.reduce(reports["seed"])


def test_the_reduction_assumes_no_collisions() -> None:
    """A collision probability of 0 bounds every pair of strings."""
    reduction = _hashing().reduction

    assert (5, 0.0) == (reduction.answers, reduction.collision)
    assert reduction.blanket + reduction.signal == pytest.approx(1, abs=1e-15)
