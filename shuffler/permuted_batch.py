"""Read a permuted batch part by part, for its delivery."""

import asyncio
from collections.abc import AsyncIterator

from common.errors import DamagedStorageError
from common.runtime.blocks import SealedBlocks
from common.wire.batches import MAX_CHUNK_BYTES
from shuffler.shuffle_job import PERMUTED


async def permuted_chunks(
    blocks: SealedBlocks, *, n_parts: int, n_reports: int, size: int
) -> AsyncIterator[bytes]:
    """
    Yield a permuted batch in chunks of whole reports.

    Args:
        blocks: The permuted batch, a block per part.
        n_parts: Number of parts.
        n_reports: Number of reports in the batch.
        size: Bytes of a sealed report.

    Raises:
        DamagedStorageError: A part is missing or damaged, or reports are missing.
        StorageError: A part cannot be read.

    Memory: about two parts.
    """
    n_read, step = 0, MAX_CHUNK_BYTES // size * size
    for part in range(n_parts):
        content = await asyncio.to_thread(blocks.get, f"{PERMUTED}/{part}")
        n_read += len(content) // size
        for start in range(0, len(content), step):
            yield content[start : start + step]
    if n_read != n_reports:
        raise DamagedStorageError(
            f"the permuted batch has {n_reports} reports; {n_read} are stored"
        )
