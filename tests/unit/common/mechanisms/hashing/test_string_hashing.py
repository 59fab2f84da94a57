import dataclasses
import math
from typing import Final

import numpy as np
import pytest
from scipy import stats

from common.errors import ReportError, TaskError, ValueRangeError
from common.mechanisms.base import is_null, null_reports
from common.mechanisms.hashing.string_hashing import StringHashing, bucket_of
from common.mechanisms.weights import ResponseWeights
from tests.support.tasks import published

_NAMES: Final = ("Genève", "Genf", "Ginevra", "", "x" * 200)
_FALSE_ALARM: Final = 1e-9

# Made by a program of its own, over Python's integers: (string, seed, buckets, bucket).
_VECTORS: Final = (
    (b"", 0, 7, 6),
    (b"a", 0, 7, 0),
    (b"a", 1, 7, 4),
    (b"a", 2**64 - 1, 7, 0),
    (b"", 0x0123456789ABCDEF, 1009, 519),
    (b"a", 0x0123456789ABCDEF, 1009, 881),
    (b"http://example.org/", 0x0123456789ABCDEF, 1009, 344),
    ("Grüße".encode(), 0x0123456789ABCDEF, 1009, 433),
    (b"x" * 300, 0x0123456789ABCDEF, 1009, 255),
    (b"", 42, 2**24, 5_074_277),
    (b"a", 42, 2**24, 16_513_511),
    (b"http://example.org/", 42, 2**24, 9_355_456),
    ("Grüße".encode(), 42, 2**24, 6_611_039),
    (b"x" * 300, 42, 2**24, 4_905_578),
    (b"a", 2**63, 2, 1),
)


def _hashing(
    buckets: int = 5, local_epsilon: float = 2.0, nonce: bytes = b"n" * 32
) -> StringHashing:
    return StringHashing(_NAMES, buckets, ResponseWeights.for_epsilon(local_epsilon), nonce)


@pytest.mark.parametrize(("string", "seed", "buckets", "bucket"), _VECTORS)
def test_strings_are_hashed_as_the_vectors_say(
    string: bytes, seed: int, buckets: int, bucket: int
) -> None:
    """Devices and analyzers of all versions and platforms must agree; nonce 00 01 .. 1f."""
    digests = _hashing(nonce=bytes(range(32)))._digests([string])

    assert [bucket] == bucket_of(np.array([seed], dtype=np.uint64), digests, buckets).tolist()


@pytest.mark.parametrize("buckets", [2, 3, 7, 16, 101])
def test_buckets_are_as_likely_as_each_other(buckets: int) -> None:
    """
    For a string, over seeds counted up from 0 and over random ones, 200,000 each.

    Fixed seeds; over nonces each of ten tests would fail by chance with probability 1e-9.
    """
    rng = np.random.default_rng(1)
    for seeds in (
        np.arange(200_000, dtype=np.uint64),
        rng.integers(0, 2**64 - 1, 200_000, dtype=np.uint64, endpoint=True),
    ):
        digests = _hashing()._digests([b"Geneva"])
        counts = np.bincount(bucket_of(seeds, digests, buckets).astype(int), minlength=buckets)
        assert buckets == len(counts)
        assert stats.chisquare(counts).pvalue > _FALSE_ALARM


@pytest.mark.parametrize(
    ("one", "other"), [(b"a", b"b"), (b"", b"\0"), (b"item 1", b"item 2"), (b"a", b"aa")]
)
@pytest.mark.parametrize("buckets", [2, 7])
def test_two_strings_fall_as_if_independently(one: bytes, other: bytes, buckets: int) -> None:
    """
    All pairs of buckets are as likely, over 300,000 random seeds: what q = 1/g rests on.

    Seed 2; over nonces each of eight tests would fail by chance with probability 1e-9.
    """
    seeds = np.random.default_rng(2).integers(0, 2**64 - 1, 300_000, dtype=np.uint64)
    digests = _hashing()._digests([one, other])
    first, second = (bucket_of(seeds, digest, buckets).astype(int) for digest in digests)
    counts = np.bincount(first * buckets + second, minlength=buckets**2)

    assert stats.chisquare(counts).pvalue > _FALSE_ALARM


def test_strings_and_candidates_are_randomized_by_the_same_code() -> None:
    """The same draws give the same reports."""
    mechanism, values = _hashing(), np.array([0, 4, 3, 0, 2, 1])
    by_number = mechanism.randomize(values, np.random.default_rng(3))
    strings = [_NAMES[value].encode() for value in values]
    by_name = mechanism.randomize_strings(strings, np.random.default_rng(3))

    assert by_number.tobytes() == by_name.tobytes()
    assert 0 == len(mechanism.randomize(values[:0], np.random.default_rng(3)))
    assert 0 == len(mechanism.randomize_strings([], np.random.default_rng(3)))


def test_a_string_that_is_no_candidate_supports_none_for_certain() -> None:
    """Without noise every report of a candidate supports it; of a stranger, one in g."""
    mechanism, rng = _hashing(local_epsilon=math.inf), np.random.default_rng(4)
    known = mechanism.tally(mechanism.randomize_strings([b"Genf"] * 2000, rng))
    stranger = mechanism.tally(mechanism.randomize_strings([b"Basel"] * 2000, rng))

    assert 2000 == known[1]
    assert (np.delete(known, 1) < 600).all()
    assert (stranger < 600).all()
    assert (stranger > 200).all()


def test_support_is_counted_report_by_report() -> None:
    """As the definition says, over several pieces of candidates."""
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


def test_another_nonce_hashes_otherwise() -> None:
    """Tasks differ in which strings collide."""
    seeds = np.arange(1000, dtype=np.uint64)
    one, other = (
        bucket_of(seeds, _hashing(nonce=nonce)._digests([b"a"]), 100)
        for nonce in (b"a" * 32, b"b" * 32)
    )

    assert (one == other).mean() < 0.05


def test_every_bit_of_a_seed_is_drawn() -> None:
    """Of 200 reports and 200 dummies no bit of 64 is always the same; by chance below 1e-57."""
    mechanism, rng = _hashing(), np.random.default_rng(8)
    for made in (mechanism.randomize(np.zeros(200, np.int64), rng), mechanism.dummies(200, rng)):
        assert 2**64 - 1 == np.bitwise_or.reduce(made["seed"])
        assert 0 == np.bitwise_and.reduce(made["seed"])


def test_probabilities_come_from_the_integers() -> None:
    """P = true/W; another string, or a dummy, is supported one time in g."""
    mechanism = _hashing(buckets=6)
    weights = mechanism.weights

    assert weights.true / (weights.true + 5 * weights.other) == mechanism.p
    assert 1 / 6 == mechanism.q == mechanism.q_dummy


def test_nothing_is_claimed_of_two_strings() -> None:
    """The accountant takes them never to collide, which bounds every pair."""
    reduction = _hashing().reduction

    assert (5, 0.0) == (reduction.answers, reduction.collision)
    assert reduction.blanket + reduction.signal == pytest.approx(1, abs=1e-15)


def test_a_bucket_out_of_range_is_no_report() -> None:
    """Padding neither; every seed is one."""
    mechanism = _hashing()
    reports = mechanism.dummies(3, np.random.default_rng(6))
    reports["seed"][0] = 2**64 - 1
    reports["bucket"][1] = 5
    padding = null_reports(1, reports.dtype)

    assert [True, False, True] == mechanism.valid(reports).tolist()
    assert is_null(padding).all()
    assert not mechanism.valid(padding).any()
    with pytest.raises(ReportError, match="not below 5"):
        mechanism.tally(reports)


@pytest.mark.parametrize("value", [-1, 5])
def test_a_value_outside_the_domain_is_refused(value: int) -> None:
    """Before anything is drawn."""
    with pytest.raises(ValueRangeError):
        _hashing().randomize(np.array([value]), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("labels", "message"), [((), "no labels"), (("a", "\ud800"), "not text that UTF-8")]
)
def test_labels_that_cannot_be_hashed_are_refused(labels: tuple[str, ...], message: str) -> None:
    """No candidates, or one that has no bytes."""
    with pytest.raises(TaskError, match=message):
        dataclasses.replace(_hashing(), candidates=labels)


def test_a_device_and_an_analyzer_build_the_same_mechanism_from_a_task() -> None:
    """Candidates are the labels, buckets need not be prime, the nonce is the task's."""
    task = published(
        protocol="ldp-olh-strings", domain_size=5, labels=_NAMES, buckets=4, dummies_per_user=0
    ).task
    mechanism = StringHashing.of(task)

    assert (_NAMES, 4, task.nonce) == (mechanism.candidates, mechanism.buckets, mechanism.nonce)
    assert 5 == mechanism.domain_size
