"""Convert the first version's staged batches: chunks of reports in the database."""

import asyncio
import hashlib
import sqlite3
from typing import Final

from analyzer.count_job import ARRIVED
from analyzer.storage import delivery_table
from analyzer.storage.staged_blocks import StagedBlocks
from analyzer.storage.store import Store
from common.messages.batch import BatchId, BatchPart
from common.task_digest import TaskDigest

_PART_BYTES: Final = 16 * 1024 * 1024
_HASH_BYTES: Final = 32


async def convert_former_chunks(store: Store, blocks: StagedBlocks) -> None:
    """
    Convert the chunks of staged batches to parts, then erase all chunks. Run at start.

    A batch whose hash is missing or differs is damaged: it becomes unusable. A crash changes
    nothing, since the chunks are erased last.
    """
    if not await store.run(_has_chunks):
        return
    for digest, batch_id, n_reports in await store.run(_staged):
        await _convert(store, blocks, digest, batch_id, n_reports)
    await store.run(_drop_chunks)
    await store.empty_log()


async def _convert(
    store: Store, blocks: StagedBlocks, digest: TaskDigest, batch_id: BatchId, n_reports: int
) -> None:
    sealed, whole = blocks.open(batch_id), hashlib.blake2b(digest_size=_HASH_BYTES)
    n_bytes, expected = await store.run(_facts, batch_id)
    parts: list[BatchPart] = []
    waiting, position = bytearray(), -1
    while True:
        position, chunk = await store.run(_next_chunk, batch_id, position)
        if waiting and (chunk is None or len(waiting) + len(chunk) > _PART_BYTES):
            name = f"{ARRIVED}/{len(parts)}"
            await asyncio.to_thread(sealed.put, name, memoryview(waiting), durable=True)
            parts.append(
                BatchPart(
                    task_digest=digest,
                    part=len(parts),
                    n_reports=len(waiting) * n_reports // n_bytes,
                    content_hash=hashlib.sha256(waiting).digest(),
                )
            )
            waiting = bytearray()
        if chunk is None:
            break
        whole.update(chunk)
        waiting += chunk
    await store.run(_record, batch_id, parts, damaged=whole.digest() != expected)


def _has_chunks(connection: sqlite3.Connection) -> bool:
    table = "SELECT 1 FROM sqlite_schema WHERE name = 'chunks'"
    return connection.execute(table).fetchone() is not None


def _staged(connection: sqlite3.Connection) -> list[tuple[TaskDigest, BatchId, int]]:
    """List the staged batches without a result."""
    rows = connection.execute(
        "SELECT task_digest, batch_id, n_reports FROM batches "
        "WHERE staged AND task_digest NOT IN (SELECT task_digest FROM results)"
    )
    return [
        (TaskDigest(digest), BatchId(batch_id), n_reports) for digest, batch_id, n_reports in rows
    ]


def _facts(connection: sqlite3.Connection, batch_id: BatchId) -> tuple[int, bytes | None]:
    """Return the number of bytes of a batch, and its hash, None if it is missing."""
    [n_bytes] = connection.execute(
        "SELECT sum(length(sealed_reports)) FROM chunks WHERE batch_id = ?", (batch_id,)
    ).fetchone()
    stored = connection.execute(
        "SELECT staged_hash FROM staged_hashes WHERE batch_id = ?", (batch_id,)
    ).fetchone()
    return n_bytes or 0, None if stored is None else stored[0]


def _next_chunk(
    connection: sqlite3.Connection, batch_id: BatchId, position: int
) -> tuple[int, bytes | None]:
    """Return the chunk after a position, with its own; None after the last."""
    row = connection.execute(
        "SELECT position, sealed_reports FROM chunks WHERE batch_id = ? AND position > ? "
        "ORDER BY position LIMIT 1",
        (batch_id, position),
    ).fetchone()
    return (position, None) if row is None else row


def _record(
    connection: sqlite3.Connection, batch_id: BatchId, parts: list[BatchPart], *, damaged: bool
) -> None:
    connection.execute("DELETE FROM parts WHERE batch_id = ?", (batch_id,))
    for part in parts:
        delivery_table.add_part(connection, batch_id, part)
    connection.execute("UPDATE batches SET n_parts = ? WHERE batch_id = ?", (len(parts), batch_id))
    if damaged:
        connection.execute(
            "UPDATE batches SET failure = coalesce(failure, ?) WHERE batch_id = ?",
            (
                "the batch's staged reports, or the hash stored with them, are damaged on the disk",
                batch_id,
            ),
        )


def _drop_chunks(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE chunks")
    connection.execute("DROP TABLE staged_hashes")
