"""
Shuffle a closed batch in bounded memory: drop reports, add dummies, permute, save.

The drops, the dummies and the order follow from the batch's seed, which is destroyed once the
permuted batch is recorded. Dummies are sealed like users' reports and look like them.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass

from common.errors import DamagedStorageError
from common.runtime.executor import Executor
from shuffler.shuffle_job import PERMUTED, SCRATCH, ShuffleJob


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleSummary:
    """Facts about a shuffled batch that may be published."""

    n_reports: int
    """Number of reports, the shuffler's dummies included."""
    by_length: tuple[int, ...]
    """Number of submissions of each of the task's lengths."""
    seconds: float
    """Processor time of the permutation alone. The time to seal dummies would reveal their number
    and, if reports are dropped, the number kept. The guarantee assumes that both are secret."""


async def shuffle(job: ShuffleJob, n_users: int, executor: Executor) -> ShuffleSummary:
    """
    Drop reports, add dummies, permute, and save the result durably in the batch's blocks.

    Safe to repeat: a repeated shuffle makes the same permuted batch, but for the ciphertexts of
    dummies.

    Raises:
        DamagedStorageError: The number of reports does not match the number of users.
        StorageError: The storage is full, read-only or failing.

    Cost: about a microsecond per report, which is sealed and opened three times under the batch's
    key, moved twice, and written and read twice; 0.1 ms per dummy. Memory of a worker: about four
    parts.
    """
    blocks = job.sealed_blocks()
    for subfolder in (PERMUTED, *SCRATCH):
        await asyncio.to_thread(blocks.delete, subfolder)
    await executor.run(ShuffleJob.seal_dummies, job, range(job.n_dummy_parts))
    thrown = await executor.run(ShuffleJob.throw, job, range(job.n_parts + job.n_dummy_parts))
    arrived = sum((part_arrived for part_arrived, _, _ in thrown), Counter[int]())
    by_length = tuple(arrived.pop(length, 0) for length in job.task.lengths)
    if arrived or sum(by_length) != n_users:
        raise DamagedStorageError(
            f"the batch has {n_users} users; {sum(by_length)} submissions are in the store"
        )
    permuted = await executor.run(ShuffleJob.permute, job, range(job.n_buckets))
    n_reports = sum(of_bucket for of_bucket, _ in permuted)
    n_thrown = sum(of_part for _, of_part, _ in thrown)
    if n_reports != n_thrown:
        raise DamagedStorageError(
            f"{n_thrown} reports were thrown into buckets; {n_reports} were permuted"
        )
    for subfolder in SCRATCH:
        await asyncio.to_thread(blocks.delete, subfolder)
    seconds = sum(seconds for *_, seconds in thrown) + sum(seconds for _, seconds in permuted)
    return ShuffleSummary(n_reports=n_reports, by_length=by_length, seconds=seconds)
