from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from deploy.audit.sampling.orders import MemoryBuckets
from shuffler.permutation import (
    BUCKET_BYTES,
    MAX_BUCKETS,
    ExternalPermutation,
    bucket_count,
    permute,
)


def _shuffled(
    reports: NDArray[np.uint8], rng: np.random.Generator, *, parts: int, n_buckets: int, room: int
) -> tuple[NDArray[np.uint8], MemoryBuckets]:
    """Shuffle reports through buckets, some at a time; every chunk but the last has three."""
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
    chunks = list(shuffle.permuted(3))
    assert [3] * ((len(reports) - 1) // 3) == [len(chunk) for chunk in chunks[:-1]]
    assert len(reports) == shuffle.n_reports
    return np.concatenate(chunks), buckets


@pytest.mark.parametrize("adds", [[6, 6], [5, 5, 2]], ids=str)
@pytest.mark.parametrize(("n_reports", "n_buckets"), [(60, 512), (600, 1), (1_200_000, 96)])
def test_every_report_is_put_into_the_bucket_drawn_for_it(
    n_reports: int, n_buckets: int, adds: list[int]
) -> None:
    """Replay every scatter (when the buffer is full) and the permutation of every bucket."""
    part, drawn, rng = n_reports // 12, np.random.default_rng(9), np.random.default_rng(9)
    chosen = np.concatenate([drawn.integers(0, n_buckets, part * n, np.uint16) for n in adds])
    expected = [drawn.permutation(np.flatnonzero(chosen == one)) for one in range(n_buckets)]
    reports, room = np.arange(n_reports, dtype="<u4")[:, None].view(np.uint8), 4 * part * adds[0]
    permuted, _ = _shuffled(reports, rng, parts=part, n_buckets=n_buckets, room=room - 1)

    assert np.array_equal(np.concatenate(expected), permuted.view("<u4")[:, 0])


def _fisher_yates(size: int, rng: np.random.Generator) -> list[int]:
    """Swap each place, from the last down, with one drawn from 32-bit words by rejection."""
    words = iter(rng.integers(0, 2**32, size=4 * size, dtype=np.uint32).tolist())
    order = list(range(size))
    for last in range(size - 1, 0, -1):
        mask = 2 ** last.bit_length() - 1
        other = next(place for word in words if (place := word & mask) <= last)
        order[last], order[other] = order[other], order[last]
    return order


@pytest.mark.parametrize("n_reports", [1, 6, 1024, 70_000])
def test_a_batch_in_memory_is_shuffled_as_by_fisher_and_yates(n_reports: int) -> None:
    """Every report's place follows from the generator's words; statistics would not show one."""
    reports = np.arange(n_reports, dtype="<u4")[:, None].view(np.uint8)
    expected = reports[_fisher_yates(n_reports, np.random.default_rng(1))]
    held, _ = _shuffled(reports, np.random.default_rng(1), parts=n_reports, n_buckets=3, room=10**9)

    assert np.array_equal(expected, permute(reports, np.random.default_rng(1)))
    assert np.array_equal(expected, held)


@pytest.mark.parametrize("n_buckets", [2, 3])
def test_all_orders_through_buckets_are_equally_likely(n_buckets: int) -> None:
    """All 24 orders of four reports are compared. Seed 9; fails by chance with probability 1e-9."""
    rng, reports = np.random.default_rng(9), np.arange(4, dtype=np.uint8)[:, None]
    orders = Counter(
        _shuffled(reports, rng, parts=2, n_buckets=n_buckets, room=0)[0].tobytes()
        for _ in range(4800)
    )

    assert 24 == len(orders)
    assert stats.chisquare(list(orders.values())).pvalue > 1e-9


def test_the_number_of_buckets_follows_from_the_batch_size() -> None:
    """A bucket has eight mebibytes on average; there are at most MAX_BUCKETS."""
    assert 1 == bucket_count(0) == bucket_count(BUCKET_BYTES)
    assert 72 == bucket_count(10**7 * 60)
    assert MAX_BUCKETS == bucket_count(10**12)
