"""Jobs over batches in a temporary folder, and runs of their stages."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from shuffledp.analyzer.batch_counts import BatchCounts
from shuffledp.analyzer.count_job import CountJob
from shuffledp.audit.harness.party_cores import InlineExecutor, part_header, parts_of
from shuffledp.common.messages.batch import BatchId, BatchManifest
from shuffledp.common.messages.inclusion_proof import Tree, bits_for
from shuffledp.common.receiving.delivery_table import Delivery
from shuffledp.common.receiving.received_job import ARRIVED
from shuffledp.common.runtime.blocks import FolderBlocks, StagedBlocks
from shuffledp.common.runtime.parts.executor import Executor
from shuffledp.common.runtime.state_directory import StateDirectory
from tests.support.leaves import SALT
from tests.support.tasks import PublishedTask

SMALL_RANGE: Final = 8
SMALL_BUCKET: Final = 2
SMALL_SLICE: Final = 5


def divide_finely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide small batches as large ones are: into several ranges, buckets and slices."""
    monkeypatch.setattr("shuffledp.common.messages.inclusion_proof.RANGE_LEAVES", SMALL_RANGE)
    monkeypatch.setattr("shuffledp.common.messages.inclusion_proof.BUCKET_LEAVES", SMALL_BUCKET)
    monkeypatch.setattr("shuffledp.common.receiving.received_job._SLICE_REPORTS", SMALL_SLICE)


def job_over(
    path: Path, case: PublishedTask, sealed: list[bytes], n_parts: int = 3, **changes: Any
) -> CountJob:
    """Store a batch's parts as they arrive, and return its job for the release."""
    digest, parts = case.signed.digest(), parts_of(sealed, n_parts)
    manifest = BatchManifest(
        task_digest=digest, batch_id=BatchId(bytes(16)), n_users=len(sealed), n_reports=len(sealed)
    )
    arrived = {number: part_header(digest, number, of_part) for number, of_part in enumerate(parts)}
    job = CountJob.plan(
        Delivery(manifest=manifest, n_parts=n_parts, staged=False, arrived=arrived),
        report_bytes=case.task.sealed_report_bytes,
        salt=SALT,
        blocks=StagedBlocks(StateDirectory.open(path.with_suffix(".state")), FolderBlocks(path)),
        task_bytes=case.signed.task_bytes,
    )
    job = replace(job, private_key=case.analyzer_key.private_bytes(), **changes)
    for number, reports in enumerate(parts):
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
