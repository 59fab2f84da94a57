import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from common.crypto.randomness import secure_generator
from shuffler.permutation import (
    BUCKET_BYTES,
    MAX_BUCKETS,
    ExternalPermutation,
    bucket_count,
    permute,
)
from tests.support.buckets import MemoryBuckets
from tests.support.order import rank_correlation


def _shuffled(
    reports: NDArray[np.uint8], rng: np.random.Generator, *, parts: int, n_buckets: int, room: int
) -> tuple[NDArray[np.uint8], MemoryBuckets]:
    """Put reports through an external shuffle, some at a time."""
    buckets = MemoryBuckets()
    shuffle = ExternalPermutation(
        report_bytes=reports.shape[1],
        buckets=buckets,
        n_buckets=n_buckets,
        rng=rng,
        buffer_bytes=room,
    )
    for start in range(0, len(reports), parts):
        shuffle.add(reports[start : start + parts])
    return np.concatenate([*shuffle.permuted(3)]), buckets


def test_every_report_leaves_as_it_came() -> None:
    """The same rows, each once, in another order."""
    reports = np.random.default_rng(1).integers(0, 256, (500, 60), dtype=np.uint8)
    permuted = permute(reports, np.random.default_rng(2))

    assert sorted(map(bytes, reports)) == sorted(map(bytes, permuted))
    assert (reports != permuted).any()


@pytest.mark.parametrize("room", [1, 600, 10_000, 10**9], ids=lambda room: f"room {room}")
@pytest.mark.parametrize("n_buckets", [1, 2, 7, 512])
def test_every_report_leaves_the_buckets_as_it_came(n_buckets: int, room: int) -> None:
    """Whatever fits into memory, and however many buckets there are."""
    reports = np.random.default_rng(1).integers(0, 256, (500, 60), dtype=np.uint8)
    permuted, _ = _shuffled(
        reports, np.random.default_rng(2), parts=40, n_buckets=n_buckets, room=room
    )

    assert sorted(map(bytes, reports)) == sorted(map(bytes, permuted))
    assert (reports != permuted).any()


@pytest.mark.parametrize("room", [0, 10**9], ids=["in buckets", "in memory"])
def test_all_orders_of_five_reports_are_equally_likely(room: int) -> None:
    """
    All 120 orders, three buckets, two reports added at a time; 12,000 shuffles against 100 each.

    Seed 3; chi-square of 119 degrees of freedom, fails by chance with probability below 1e-7.
    """
    reports = np.arange(5, dtype=np.uint8)[:, None]
    rng, shuffles = np.random.default_rng(3), 12_000
    counts = dict.fromkeys(itertools.permutations(range(5)), 0)
    for _ in range(shuffles):
        order, _ = _shuffled(reports, rng, parts=2, n_buckets=3, room=room)
        counts[tuple(order[:, 0].tolist())] += 1
    expected = shuffles / len(counts)
    distance = sum((count - expected) ** 2 / expected for count in counts.values())

    assert 120 == len(counts)
    assert stats.chi2.sf(distance, 119) > 1e-7


def test_a_report_may_come_to_any_place() -> None:
    """
    1000 reports in 16 buckets, 400 shuffles: from which tenth a report came to which tenth it went.

    Chi-square of 81 degrees of freedom, times 1000/999 because the margins are fixed. Seed 4; fails
    by chance with probability below 1e-7 on either side: too even an order is none.
    """
    reports = np.arange(1000, dtype="<u2")[:, None].view(np.uint8)
    rng, table = np.random.default_rng(4), np.zeros((10, 10))
    for _ in range(400):
        permuted, _ = _shuffled(reports, rng, parts=37, n_buckets=16, room=300)
        came = permuted.copy().view("<u2")[:, 0] // 100
        np.add.at(table, (came, np.arange(1000) // 100), 1)
    distance = float(((table - 4000) ** 2 / 4000).sum()) * 999 / 1000

    assert stats.chi2.sf(distance, 81) > 1e-7
    assert stats.chi2.cdf(distance, 81) > 1e-7


def test_buckets_are_chosen_for_each_report_apart() -> None:
    """
    Their sizes vary as independent throws do: not equal parts, which would be no uniform order.

    20 shuffles of 2000 reports into eight buckets, seed 5: chi-square of 140 degrees of freedom,
    fails by chance with probability below 1e-7 on either side.
    """
    reports, rng = np.zeros((2000, 1), dtype=np.uint8), np.random.default_rng(5)
    distance = 0.0
    for _ in range(20):
        _, buckets = _shuffled(reports, rng, parts=100, n_buckets=8, room=300)
        sizes = np.array([buckets.filled.get(bucket, 0) for bucket in range(8)])
        distance += float(((sizes - 250) ** 2 / 250).sum())

    assert stats.chi2.sf(distance, 140) > 1e-7
    assert stats.chi2.cdf(distance, 140) > 1e-7


@pytest.mark.parametrize("n_reports", [0, 1, 6, 1024, 70_000])
def test_every_report_stands_where_the_generator_says(n_reports: int) -> None:
    """
    The order is the one that is drawn, report by report, and follows from nothing else.

    A statistic does not show one report that is moved, or large batches that are left alone.
    """
    reports = np.arange(n_reports, dtype="<u4")[:, None].view(np.uint8)
    for seed in (1, 2):
        expected = reports[np.random.default_rng(seed).permutation(n_reports)]
        assert np.array_equal(expected, permute(reports, np.random.default_rng(seed)))


def test_productions_generator_leaves_nothing_of_the_order() -> None:
    """Seeds are of tests; a service draws from another generator. Fails by chance below 2e-9."""
    reports = np.arange(1000, dtype="<u4")[:, None].view(np.uint8)
    order = permute(reports, secure_generator()).view("<u4")[:, 0].tolist()

    assert abs(rank_correlation(range(1000), order)) < 6


@pytest.mark.parametrize(("n_reports", "n_buckets"), [(500, 2), (500, 16), (80_000, 96)])
def test_every_bucket_holds_what_was_thrown_into_it_permuted(
    n_reports: int, n_buckets: int
) -> None:
    """Every report is thrown by a number of its own, and every bucket is permuted by its own."""
    reports = np.arange(n_reports, dtype="<u4")[:, None].view(np.uint8)
    drawn = np.random.default_rng(9)
    thrown = drawn.integers(0, n_buckets, size=n_reports, dtype=np.uint16)
    expected = []
    for bucket in range(n_buckets):
        inside = np.flatnonzero(thrown == bucket)
        expected.append(inside[drawn.permutation(len(inside))])
    order, _ = _shuffled(
        reports, np.random.default_rng(9), parts=n_reports, n_buckets=n_buckets, room=0
    )

    assert np.concatenate(expected).tolist() == order.view("<u4")[:, 0].tolist()


def test_chunks_tell_nothing_of_the_buckets() -> None:
    """All have the wanted number of reports but the last."""
    shuffle = ExternalPermutation(
        report_bytes=4,
        buckets=MemoryBuckets(),
        n_buckets=9,
        rng=np.random.default_rng(6),
        buffer_bytes=50,
    )
    shuffle.add(np.zeros((1000, 4), dtype=np.uint8))
    shuffle.add(np.zeros((7, 4), dtype=np.uint8))

    assert [64] * 15 + [47] == [len(chunk) for chunk in shuffle.permuted(64)]
    assert 1007 == shuffle.n_reports


def test_a_small_batch_never_touches_a_bucket() -> None:
    """What fits into the buffer is permuted there."""
    reports = np.zeros((100, 60), dtype=np.uint8)
    _, buckets = _shuffled(reports, np.random.default_rng(7), parts=10, n_buckets=4, room=6000)

    assert {} == buckets.filled


def test_an_empty_batch_is_an_empty_order() -> None:
    """Where the shuffler dropped every report."""
    shuffle = ExternalPermutation(
        report_bytes=60, buckets=MemoryBuckets(), n_buckets=1, rng=np.random.default_rng(8)
    )

    assert [] == list(shuffle.permuted(1000))


def test_buckets_fit_into_memory() -> None:
    """Eight mebibytes on average, from an empty batch to one of many gigabytes."""
    assert 1 == bucket_count(0) == bucket_count(BUCKET_BYTES)
    assert 72 == bucket_count(10**7 * 60)
    assert MAX_BUCKETS == bucket_count(10**12)
