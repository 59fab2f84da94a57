"""Jobs over batches in a temporary folder, and runs of their stages."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from analyzer.batch_counts import BatchCounts
from analyzer.count_job import ARRIVED, CountJob
from audit.harness.analyzer_core import InlineExecutor, part_header, parts_of
from common.crypto.batch_key import BatchKey
from common.messages.batch import BatchId, BatchManifest
from common.messages.inclusion_proof import Tree, bits_for
from common.runtime.blocks import FolderBlocks
from common.runtime.executor import Executor
from tests.support.leaves import SALT
from tests.support.tasks import PublishedTask

SMALL_RANGE: Final = 8
SMALL_BUCKET: Final = 2
SMALL_SLICE: Final = 5


def divide_finely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide small batches as large ones are: into several ranges, buckets and slices."""
    monkeypatch.setattr("common.messages.inclusion_proof.RANGE_LEAVES", SMALL_RANGE)
    monkeypatch.setattr("common.messages.inclusion_proof.BUCKET_LEAVES", SMALL_BUCKET)
    monkeypatch.setattr("analyzer.count_job._SLICE_REPORTS", SMALL_SLICE)


def job_over(
    path: Path, case: PublishedTask, sealed: list[bytes], n_parts: int = 3, **changes: Any
) -> CountJob:
    """Store a batch's parts as they arrive, and return its job for the release."""
    manifest = BatchManifest(
        task_digest=case.signed.digest(),
        batch_id=BatchId(bytes(16)),
        n_users=len(sealed),
        n_reports=len(sealed),
    )
    job = CountJob.plan(
        manifest,
        n_parts=n_parts,
        task_bytes=case.signed.task_bytes,
        key=BatchKey(bytes(range(32))),
        salt=SALT,
        blocks=FolderBlocks(path),
        content_hashes=b"".join(
            part_header(case.signed.digest(), number, reports).content_hash
            for number, reports in enumerate(parts_of(sealed, n_parts))
        ),
    )
    job = replace(job, private_key=case.analyzer_key.private_bytes(), **changes)
    for number, reports in enumerate(parts_of(sealed, n_parts)):
        job.sealed_blocks().put(f"{ARRIVED}/{number}", b"".join(reports))
    return job


async def merge(job: CountJob, executor: Executor) -> tuple[CountJob, Tree, int]:
    """Run the stages of staging; return the job with its depth, the tree, and the repeats."""
    dropped = await executor.run(CountJob.split, job, range(job.n_parts))
    merged = await executor.run(CountJob.merge, job, range(job.n_ranges))
    n_distinct = sum(distinct for distinct, _ in merged)
    job = replace(job, bits=bits_for(n_distinct))
    roots = await executor.run(CountJob.hash_buckets, job, range(job.n_subtrees))
    n_repeated = sum(dropped) + sum(repeated for _, repeated in merged)
    return job, Tree(n_distinct, b"".join(roots)), n_repeated


async def count(job: CountJob, executor: Executor | None = None) -> BatchCounts:
    """Run all stages, and return the counts."""
    executor = executor or InlineExecutor()
    job, _, n_repeated = await merge(job, executor)
    parts = await executor.run(CountJob.count, job, range(job.n_slices))
    return BatchCounts.joined(job.cells(), parts, n_repeated=n_repeated, open_seconds=0.0)
