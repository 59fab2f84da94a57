"""Deliver a permuted batch to the analyzer, part by part."""

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Final

from common.messages.batch import BatchManifest, BatchPart
from common.runtime.blocks import SealedBlocks
from common.runtime.executor import gather
from common.wire.batches import MAX_CHUNK_BYTES
from shuffler.analyzer_client import Analyzer
from shuffler.shuffle_job import PERMUTED

_PARTS_AT_ONCE: Final = 2
"""Parts delivered together: one is sent while the next is read."""


async def deliver_parts(
    analyzer: Analyzer, manifest: BatchManifest, blocks: SealedBlocks, n_parts: int, size: int
) -> None:
    """
    Deliver the parts that the analyzer does not have yet.

    `blocks` are the permuted batch, one a part; `size` is that of a sealed report, in bytes.

    Raises:
        PeerRefusalError: The analyzer refuses the batch.
        PeerError: The analyzer does not answer; safe to retry.
        StorageError: A part cannot be read.

    Memory: about four parts.
    """
    arrived, staged = await analyzer.begin_delivery(manifest, n_parts)
    slots = asyncio.Semaphore(_PARTS_AT_ONCE)

    async def deliver(number: int) -> None:
        async with slots:
            content = await asyncio.to_thread(blocks.get, f"{PERMUTED}/{number}")
            part = BatchPart(
                task_digest=manifest.task_digest,
                part=number,
                n_reports=len(content) // size,
                content_hash=(await asyncio.to_thread(hashlib.sha256, content)).digest(),
            )
            await analyzer.deliver_part(part, chunks_of_part(content, size))

    if not staged:
        await gather(deliver(number) for number in range(n_parts) if number not in arrived)


def chunks_of_part(content: bytes, size: int) -> Iterator[memoryview]:
    """Yield a part's reports of `size` bytes in chunks of whole reports."""
    view, step = memoryview(content), MAX_CHUNK_BYTES // size * size
    for start in range(0, len(content), step):
        yield view[start : start + step]
