import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.audit.harness.party_cores import InlineExecutor
from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.crypto.hpke import report_context, split_every
from shuffledp.common.crypto.randomness import seeded_generator
from shuffledp.common.errors import DamagedStorageError
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.runtime.blocks import FolderBlocks
from shuffledp.common.task.shuffler_spec import KEEP_SUM, BinomialNoise, ShufflerSpec
from shuffledp.shuffler.permutation import permute
from shuffledp.shuffler.shuffle_job import PERMUTED, Permuted, ShuffleJob, shuffle
from shuffledp.shuffler.storage.group import NUMBER_BITS, seal_group
from tests.support.tasks import SHUFFLER_NOISE, PublishedTask, published

_PLAIN: Final = SHUFFLER_NOISE | {"domain_size": 7, "delta": 1e-2}
_COINS: Final = ShufflerSpec(noise=BinomialNoise(trials=600))
_SAMPLED: Final = dataclasses.replace(_COINS, keep_weight=KEEP_SUM // 4)
_CASES: Final = {
    "permutes": published(),
    "dummies": published(shuffler=_COINS, **_PLAIN),
    "dummies, sampled": published(shuffler=_SAMPLED, **_PLAIN),
}
_SEVERAL: Final = {"n_parts": 3, "n_buckets": 4, "n_dummy_parts": 2}
_KEY: Final = BatchKey(bytes(32))
_SEED: Final = bytes(range(32))


@dataclasses.dataclass(frozen=True)
class MemoryGroups:
    """Groups in memory, sorted by number."""

    groups: tuple[tuple[int, bytes], ...]

    def read(self, batch_id: BatchId, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Yield the groups in a range of numbers."""
        del batch_id
        return (group for group in self.groups if first <= group[0] < last)


def _reports(case: PublishedTask, n_users: int) -> list[bytes]:
    size = case.task.sealed_report_bytes
    return split_every(np.random.default_rng(3).bytes(n_users * case.task.lengths[-1] * size), size)


def _job(case: PublishedTask, path: Path, n_users: int, **changes: Any) -> ShuffleJob:
    """Plan the shuffle of a batch whose users are stored 30 to a group."""
    reports, per_user = _reports(case, n_users), case.task.lengths[-1]
    users = [b"".join(reports[at : at + per_user]) for at in range(0, len(reports), per_user)]
    n_groups = -(-n_users // 30)
    groups = []
    for index in range(n_groups):  # spread evenly, so that every part has some
        number = ((2 * index + 1) << NUMBER_BITS) // (2 * n_groups)
        groups.append((number, seal_group(users[30 * index : 30 * (index + 1)], _KEY, number)))
    job = ShuffleJob.plan(
        batch_id=BatchId(bytes(16)),
        task_bytes=case.signed.task_bytes,
        n_users=n_users,
        key=_KEY,
        seed=_SEED,
        source=MemoryGroups(tuple(groups)),
        blocks=FolderBlocks(path),
    )
    return dataclasses.replace(job, **changes)


async def _shuffle(job: ShuffleJob, n_users: int) -> tuple[Permuted, list[bytes]]:
    summary = await shuffle(job, n_users, InlineExecutor())
    return summary, split_every(_permuted(job), job.task.sealed_report_bytes)


def _permuted(job: ShuffleJob) -> bytes:
    blocks = job.sealed_blocks()
    return b"".join(blocks.get(f"{PERMUTED}/{bucket}") for bucket in range(job.n_buckets))


@pytest.mark.parametrize("parts", [{}, _SEVERAL], ids=["one part", "several parts"])
@pytest.mark.parametrize("name", list(_CASES))
async def test_the_batch_is_the_kept_reports_and_the_dummies(
    tmp_path: Path, name: str, parts: dict[str, int]
) -> None:
    """
    Users' reports are there at most once, or exactly once where none is dropped, and as many
    dummies of each item as the distribution says.

    2000 users: the kept quarter lies within eight standard deviations of 500, and seven times 600
    coins within eight of 2100; so does the mean rank of users' reports among the dummies of a half.
    Fails by chance over the seed with probability below 1e-14.
    """
    case = _CASES[name]
    if case.task.shuffler.only_permutes:
        parts = parts | {"n_dummy_parts": 0}
    job = _job(case, tmp_path, 2000, **parts)
    own = set(_reports(case, 2000))
    shuffled, order = await _shuffle(job, 2000)
    kept = [report for report in order if report in own]
    n_dummies = len(order) - len(kept)

    assert 1 == max(Counter(order).values())
    assert len(order) == shuffled.n_reports
    assert shuffled.shuffle_seconds > 0
    if case.task.shuffler.keep_weight == KEEP_SUM:
        assert own == set(kept)
    else:
        assert abs(len(kept) - 500) < 8 * np.sqrt(2000 * 3 / 16)
    if case.task.shuffler.only_permutes:
        assert 0 == n_dummies
    else:
        assert abs(n_dummies - 2100) < 8 * np.sqrt(7 * 600 / 4)
        mechanism, context = mechanism_of(case.task), report_context(case.signed.digest())
        dummies = [case.analyzer_key.open(one, context) for one in order if one not in own]
        opened = np.frombuffer(b"".join(dummies), dtype=mechanism.report_dtype)
        assert mechanism.valid(opened).all()
        ranks = [place + 0.5 for place, report in enumerate(order) if report in own]
        mean = np.mean(ranks) / len(order)
        assert abs(mean - 0.5) < 8 / np.sqrt(12 * len(kept))
    assert [path.name for path in (tmp_path / job.folder).iterdir()] == [PERMUTED]


async def test_a_part_that_is_computed_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """
    A part's blocks are written again after half of the buckets have read them.

    With fresh randomness about half of the part's reports would be lost, and as many doubled.
    """
    job = _job(_CASES["permutes"], tmp_path, 600, **_SEVERAL)
    job = dataclasses.replace(job, n_dummy_parts=0)
    for part in range(job.n_parts):
        job.scatter(part)
    for bucket in (0, 1):
        job.permute(bucket)
    job.scatter(1)
    for bucket in (2, 3):
        job.permute(bucket)

    order = split_every(_permuted(job), job.task.sealed_report_bytes)
    assert Counter(_reports(_CASES["permutes"], 600)) == Counter(order)


async def test_a_repeated_shuffle_writes_the_same_blocks(tmp_path: Path) -> None:
    """Every block is the same bit for bit, in every stage; another seed permutes otherwise."""
    case = _CASES["permutes"]
    first = _job(case, tmp_path / "first", 300, **_SEVERAL | {"n_dummy_parts": 0})
    second = dataclasses.replace(first, blocks=FolderBlocks(tmp_path / "second"))
    other = dataclasses.replace(first, blocks=FolderBlocks(tmp_path / "other"), seed=bytes(32))
    for job in (first, second, other):
        for part in range(job.n_parts):
            job.scatter(part)
        for bucket in range(job.n_buckets):
            job.permute(bucket)
    scattered = [f"scattered/{part}.{bucket}" for part in range(3) for bucket in range(4)]
    names = [*scattered, *(f"{PERMUTED}/{bucket}" for bucket in range(4))]

    def blocks(job: ShuffleJob) -> list[bytes]:
        return [job.sealed_blocks().get(name) for name in names]

    assert blocks(first) == blocks(second)
    size = first.task.sealed_report_bytes
    for bucket in range(4):
        scattered_into = b"".join(
            first.sealed_blocks().get(f"scattered/{p}.{bucket}") for p in range(3)
        )
        rows = np.frombuffer(scattered_into, dtype=np.uint8).reshape(-1, size)
        expected = permute(rows, seeded_generator(_SEED, "permute", bucket))
        assert expected.tobytes() == first.sealed_blocks().get(f"{PERMUTED}/{bucket}")
    assert not set(blocks(first)) & set(blocks(other))


async def test_dummies_that_are_sealed_again_are_the_same_reports_at_the_same_places(
    tmp_path: Path,
) -> None:
    """Their ciphertexts differ, since sealing draws a fresh key."""
    case = _CASES["dummies"]
    job = _job(case, tmp_path, 30, **_SEVERAL)

    def scattered() -> list[list[bytes]]:
        """Return the sealed dummies in each bucket."""
        for part in range(job.n_dummy_parts):
            job.seal_dummies(part)
            job.scatter(job.n_parts + part)
        blocks = job.sealed_blocks()
        return [
            split_every(
                b"".join(blocks.get(f"scattered/{job.n_parts + part}.{bucket}") for part in (0, 1)),
                job.task.sealed_report_bytes,
            )
            for bucket in range(job.n_buckets)
        ]

    def opened(buckets: list[list[bytes]]) -> list[list[bytes]]:
        context = report_context(case.signed.digest())
        return [[case.analyzer_key.open(one, context) for one in bucket] for bucket in buckets]

    first, second = scattered(), scattered()
    assert first != second
    assert opened(first) == opened(second)


async def test_the_reported_time_excludes_sealing(tmp_path: Path) -> None:
    """The time to seal dummies would reveal how many there are, and how many reports were kept."""
    case = _CASES["dummies, sampled"]
    shuffled, order = await _shuffle(_job(case, tmp_path, 60), 60)
    sealing = 50e-6  # seconds: a lower bound for two X25519 operations

    assert shuffled.shuffle_seconds < len(order) * sealing


@pytest.mark.parametrize("change", [-1, 1])
async def test_a_missing_or_extra_submission_stops_the_shuffle(tmp_path: Path, change: int) -> None:
    """The number of reports must be that of the batch's users."""
    job = _job(_CASES["permutes"], tmp_path, 60 + change)
    with pytest.raises(DamagedStorageError, match=r"the batch has 60 users; (59|61) submissions"):
        await _shuffle(job, 60)


def test_a_job_shows_neither_key_nor_seed(tmp_path: Path) -> None:
    """Its repr may be logged."""
    shown = repr(_job(_CASES["permutes"], tmp_path, 30))

    assert "seed" not in shown
    assert "key=" not in shown


def test_every_group_belongs_to_one_part(tmp_path: Path) -> None:
    """The first and last numbers, and those around the edges of three parts."""
    edges = [(1 << NUMBER_BITS) * part // 3 for part in range(4)]
    numbers = sorted({0, *(edge + more for edge in edges for more in (-1, 0, 1))} - {-1})
    numbers = [number for number in numbers if number < 1 << NUMBER_BITS]
    size = _CASES["permutes"].task.sealed_report_bytes
    job = _job(_CASES["permutes"], tmp_path, 30, **_SEVERAL)
    groups = tuple((number, seal_group([bytes(size)], _KEY, number)) for number in numbers)
    job = dataclasses.replace(job, source=MemoryGroups(groups))

    assert len(numbers) == sum(job.scatter(part)[0].total() for part in range(3))
