import numpy as np
import pytest
from numpy.typing import NDArray

from shuffler.permutation import (
    BUCKET_BYTES,
    MAX_BUCKETS,
    ExternalPermutation,
    bucket_count,
    permute,
)
from tests.support.buckets import MemoryBuckets


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


@pytest.mark.parametrize("room", [1, 600, 10_000, 10**9], ids=lambda room: f"room {room}")
@pytest.mark.parametrize("n_buckets", [1, 2, 7, 512])
def test_every_report_passes_the_buckets_unchanged(n_buckets: int, room: int) -> None:
    """Whatever fits into memory, and however many buckets there are."""
    reports = np.random.default_rng(1).integers(0, 256, (500, 60), dtype=np.uint8)
    permuted, _ = _shuffled(
        reports, np.random.default_rng(2), parts=40, n_buckets=n_buckets, room=room
    )

    assert sorted(map(bytes, reports)) == sorted(map(bytes, permuted))
    assert (reports != permuted).any()


@pytest.mark.parametrize("n_reports", [0, 1, 6, 1024, 70_000])
def test_the_permutation_is_the_generators(n_reports: int) -> None:
    """Report by report; a statistic would not show a single moved one."""
    reports = np.arange(n_reports, dtype="<u4")[:, None].view(np.uint8)
    for seed in (1, 2):
        expected = reports[np.random.default_rng(seed).permutation(n_reports)]
        assert np.array_equal(expected, permute(reports, np.random.default_rng(seed)))
        if n_reports:
            rng = np.random.default_rng(seed)
            held, _ = _shuffled(reports, rng, parts=n_reports, n_buckets=3, room=10**9)
            assert np.array_equal(expected, held)


@pytest.mark.parametrize(("n_reports", "n_buckets"), [(500, 2), (500, 16), (80_000, 96)])
def test_every_bucket_is_permuted_by_its_own_draw(n_reports: int, n_buckets: int) -> None:
    """Every report's bucket, too, is drawn independently."""
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


def test_chunk_sizes_do_not_depend_on_buckets() -> None:
    """All have the requested number of reports but the last."""
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


def test_the_number_of_buckets_follows_from_the_batch_size() -> None:
    """Eight mebibytes each on average, at most MAX_BUCKETS."""
    assert 1 == bucket_count(0) == bucket_count(BUCKET_BYTES)
    assert 72 == bucket_count(10**7 * 60)
    assert MAX_BUCKETS == bucket_count(10**12)
