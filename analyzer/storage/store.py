"""The analyzer's database: tasks, staged batches, cell counts, results and the ledger."""

import sqlite3
from pathlib import Path
from typing import Final, Literal

from shuffledp.analyzer.storage import ledger, log_table, quarantine, task_table
from shuffledp.common.messages.batch import BatchManifest
from shuffledp.common.messages.ledger_entry import ChainedEntry, LedgerEntry
from shuffledp.common.receiving import delivery_table
from shuffledp.common.runtime.database import Database, Schema
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.results import MAX_LEDGER_ENTRIES

_TABLES: Final = (
    task_table.SCHEMA
    + delivery_table.schema("tasks", "failure TEXT")
    + """
CREATE TABLE IF NOT EXISTS results (
    task_digest BLOB PRIMARY KEY REFERENCES tasks,
    cells BLOB NOT NULL,
    result BLOB NOT NULL
) WITHOUT ROWID;
"""
    + ledger.SCHEMA
)

DeliveredState = Literal["staged", "released", "unusable"]
"""State of a delivered batch."""


class Store(Database):
    """The analyzer's database; `run` runs functions of this package's other files in its thread."""

    def __init__(self, path: Path) -> None:
        decisions = ledger.DECISIONS + quarantine.QUARANTINED
        waived = ledger.WAIVED + ledger.DECIDED_TWICE
        added = (delivery_table.BY_LENGTH, decisions, log_table.SCHEMA, waived)
        steps = (_TABLES, *added, delivery_table.DISCARDED)
        # Version 4 would take a ledger with waived checks for a broken one.
        super().__init__(path, Schema(steps=steps, readable_from=5))

    async def staged(self) -> list[BatchManifest]:
        """List the staged batches that are neither released nor unusable."""
        rows = await self.fetch(
            f"SELECT {delivery_table.MANIFEST} FROM batches WHERE staged AND failure IS NULL "  # noqa: S608
            "AND task_digest NOT IN (SELECT task_digest FROM results)"
        )
        return list(map(delivery_table.manifest_of, rows))

    async def release(self, cells: bytes, result: bytes, cost: LedgerEntry) -> None:
        """
        Store the cells and result, and charge the ledger, in one transaction.

        No program reads the cells: from them, an operator can estimate the batch by other methods.
        """

        def release(connection: sqlite3.Connection) -> None:
            ledger.check_not_dropped(connection, cost.task_digest)
            connection.execute(
                "INSERT INTO results VALUES (?, ?, ?)", (cost.task_digest, cells, result)
            )
            ledger.append(connection, cost)

        await self.run(release)

    async def ledger(self, after: int) -> list[ChainedEntry]:
        """List at most MAX_LEDGER_ENTRIES entries of the ledger with numbers above `after`."""
        return await self.run(ledger.entries_after, after, MAX_LEDGER_ENTRIES)

    async def batch_states(self) -> dict[TaskDigest, DeliveredState]:
        """Return the state of every batch that is staged, released or unusable. Run at start."""
        rows = await self.fetch(
            "SELECT task_digest, CASE WHEN task_digest IN (SELECT task_digest FROM results) "
            "THEN 'released' WHEN failure IS NOT NULL THEN 'unusable' ELSE 'staged' END "
            "FROM batches WHERE staged OR failure IS NOT NULL"
        )
        return {TaskDigest(digest): state for digest, state in rows}

    async def mark_unusable(
        self, manifest: BatchManifest, failure: str, *, quarantined: bool = False
    ) -> None:
        """
        Store why a batch can never be released or, if `quarantined`, waits for a decision.

        Its staged reports are kept. Raises ConflictError if the operator dropped it meanwhile.
        """
        await self.run(_mark_unusable, manifest, failure, quarantined=quarantined)

    async def failure(self, digest: TaskDigest) -> tuple[str, bool] | None:
        """Look up why a task's batch has no result, and whether it is quarantined."""
        rows = await self.fetch(
            "SELECT failure, quarantined FROM batches "
            "WHERE task_digest = ? AND failure IS NOT NULL",
            digest,
        )
        return (rows[0][0], bool(rows[0][1])) if rows else None

    async def result(self, digest: TaskDigest) -> bytes | None:
        """Look up a released result; None if there is none."""
        rows = await self.fetch("SELECT result FROM results WHERE task_digest = ?", digest)
        return bytes(rows[0][0]) if rows else None


def _mark_unusable(
    connection: sqlite3.Connection, manifest: BatchManifest, failure: str, *, quarantined: bool
) -> None:
    ledger.check_not_dropped(connection, manifest.task_digest)
    connection.execute(
        "UPDATE batches SET failure = ?, quarantined = ? WHERE task_digest = ? AND batch_id = ?",
        (failure, quarantined, manifest.task_digest, manifest.batch_id),
    )
