from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shuffledp.common.crypto.randomness import seeded_generator
from shuffledp.common.messages.batch import MAX_PART_BYTES, MAX_PARTS
from shuffledp.shuffler.permutation import permute, scatter
from shuffledp.shuffler.shuffle_job import BLOCK_BYTES, PART_BYTES, part_count


def _numbered(n_reports: int) -> NDArray[np.uint8]:
    return np.arange(n_reports, dtype="<u4")[:, None].view(np.uint8)


@pytest.mark.parametrize(("n_reports", "n_buckets"), [(0, 3), (60, 512), (600, 1), (120_000, 96)])
def test_every_report_is_scattered_to_the_bucket_drawn_for_it(
    n_reports: int, n_buckets: int
) -> None:
    """Replay the draws; reports keep their order within a bucket."""
    chosen = np.random.default_rng(9).integers(0, n_buckets, n_reports, np.uint16)
    expected = [np.flatnonzero(chosen == bucket).tolist() for bucket in range(n_buckets)]
    buckets = scatter(_numbered(n_reports), n_buckets, np.random.default_rng(9))

    assert expected == [bucket.reshape(-1, 4).view("<u4")[:, 0].tolist() for bucket in buckets]


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
def test_a_bucket_is_shuffled_as_by_fisher_and_yates(n_reports: int) -> None:
    """Every report's place follows from the generator's words; statistics would not show one."""
    reports = _numbered(n_reports)
    expected = reports[_fisher_yates(n_reports, np.random.default_rng(1))]

    assert np.array_equal(expected, permute(reports, np.random.default_rng(1)))


@pytest.mark.parametrize("n_buckets", [1, 2, 3])
def test_all_orders_through_buckets_are_equally_likely(n_buckets: int) -> None:
    """
    All 24 orders of four reports in two parts are compared, drawn as the shuffler draws them.

    Seeds 0 to 599; fails by chance with probability 1e-9.
    """
    reports, orders = np.arange(4, dtype=np.uint8)[:, None], Counter[bytes]()
    for number in range(600):
        seed = number.to_bytes(32)
        scattered = [
            scatter(half, n_buckets, seeded_generator(seed, "scatter", part))
            for part, half in enumerate((reports[:2], reports[2:]))
        ]
        permuted = [
            permute(np.concatenate(bucket), seeded_generator(seed, "permute", index))
            for index, bucket in enumerate(zip(*scattered, strict=True))
        ]
        orders[np.concatenate(permuted).tobytes()] += 1

    assert 24 == len(orders)
    assert stats.chisquare(list(orders.values())).pvalue > 1e-9


def test_the_number_of_parts_follows_from_the_batch_size() -> None:
    """A small batch has one part; blocks, of which there are parts times buckets, stay large."""
    assert 1 == part_count(0) == part_count(PART_BYTES)
    assert 55 == part_count(10**7 * 92)
    for batch_bytes in (10**9 * 92, 10**12):
        parts = part_count(batch_bytes)
        assert parts <= MAX_PARTS
        assert batch_bytes / parts <= MAX_PART_BYTES / 2
    assert 0.9 * BLOCK_BYTES < 10**9 * 60 / part_count(10**9 * 60) ** 2
