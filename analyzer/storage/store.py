"""The analyzer's database: tasks, staged batches, cell counts, results and the ledger."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

from analyzer.storage import delivery_table, ledger, log_table, quarantine, task_table
from common.messages.batch import BatchId, BatchManifest, numbers_from_text
from common.messages.ledger_entry import ChainedEntry, ChainHead, LedgerEntry
from common.runtime.database import Database, storage_failures
from common.runtime.schema import Schema
from common.task_digest import TaskDigest
from common.wire.results import MAX_LEDGER_ENTRIES

_TABLES: Final = (
    task_table.SCHEMA
    + delivery_table.SCHEMA
    + """
CREATE TABLE IF NOT EXISTS results (
    task_digest BLOB PRIMARY KEY REFERENCES tasks,
    cells BLOB NOT NULL,
    result BLOB NOT NULL
) WITHOUT ROWID;
"""
    + ledger.SCHEMA
)

P = ParamSpec("P")
T = TypeVar("T")

DeliveredState = Literal["staged", "released", "unusable"]
"""State of a delivered batch."""


class Store:
    """The analyzer's database. Each method that writes is one durable transaction."""

    def __init__(self, path: Path) -> None:
        _add_columns(path)
        decisions = ledger.DECISIONS + quarantine.QUARANTINED
        steps = (_TABLES, delivery_table.BY_LENGTH, decisions, log_table.SCHEMA)
        # Version 2 would take a ledger with decisions for a broken one.
        self._database = Database(path, Schema(steps=steps, readable_from=3))

    async def run(
        self,
        work: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a function of this package's other files as one transaction."""
        return await self._database.run(work, *args, **kwargs)

    async def commitment(self, digest: TaskDigest) -> bytes | None:
        """Look up the commitment to a task's batch; None if an earlier version staged it."""
        return await self._database.run(
            _blob, "SELECT commitment FROM commitments WHERE task_digest = ?", digest
        )

    async def staged(self) -> list[BatchManifest]:
        """List the staged batches that are neither released nor unusable."""
        return await self._database.run(_staged)

    async def release(
        self, manifest: BatchManifest, cells: bytes, result: bytes, cost: ledger.Charge
    ) -> None:
        """Store the cells and result, and charge the ledger, in one transaction."""
        await self._database.run(_release, manifest, cells, result, cost)

    async def check_ledger(self) -> ChainHead:
        """
        Verify the ledger with `ledger.check`, and return the chain's head.

        Raises:
            LedgerError: As in `ledger.check`.
        """
        return await self._database.run(ledger.check)

    async def ledger(self, after: int) -> list[ChainedEntry]:
        """List at most MAX_LEDGER_ENTRIES entries of the ledger with numbers above `after`."""
        return await self._database.run(ledger.entries_after, after, MAX_LEDGER_ENTRIES)

    async def releases_to(self, population: str) -> list[LedgerEntry]:
        """List the ledger's entries of a population."""
        return await self._database.run(ledger.entries_of, population)

    async def populations(self) -> list[str]:
        """List the populations with a release."""
        return await self._database.run(ledger.populations)

    async def batch_states(self) -> dict[TaskDigest, DeliveredState]:
        """Return the state of every batch that is staged, released or unusable. Run at start."""
        return await self._database.run(_batch_states)

    async def mark_unusable(
        self, manifest: BatchManifest, failure: str, *, quarantined: bool = False
    ) -> None:
        """
        Store why a batch can never be released or, if `quarantined`, waits for a decision.

        Its staged reports are kept.
        """
        await self._database.run(_mark_unusable, manifest, failure, quarantined=quarantined)

    async def failure(self, digest: TaskDigest) -> tuple[str, bool] | None:
        """Look up why a task's batch has no result, and whether it is quarantined."""
        return await self._database.run(_failure, digest)

    async def result(self, digest: TaskDigest) -> bytes | None:
        """Look up a released result; None if there is none."""
        return await self._database.run(
            _blob, "SELECT result FROM results WHERE task_digest = ?", digest
        )

    def close(self) -> None:
        """Close the database."""
        self._database.close()


@storage_failures()
def _add_columns(path: Path) -> None:
    """Add the columns that a database of the first version lacks."""
    with closing(sqlite3.connect(path)) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(batches)")]
        if columns and "salt" not in columns:
            with connection:
                for statement in delivery_table.ADDED_COLUMNS:
                    connection.execute(statement)


def _blob(connection: sqlite3.Connection, query: str, *key: bytes | int) -> bytes | None:
    """Return a query's single value; None if it finds none."""
    row = connection.execute(query, key).fetchone()
    return None if row is None else bytes(row[0])


def _staged(connection: sqlite3.Connection) -> list[BatchManifest]:
    rows = connection.execute(
        "SELECT task_digest, batch_id, n_users, n_reports, by_length FROM batches "
        "WHERE staged AND failure IS NULL AND task_digest NOT IN (SELECT task_digest FROM results)"
    )
    return [
        BatchManifest(
            task_digest=TaskDigest(digest),
            batch_id=BatchId(batch_id),
            n_users=n_users,
            n_reports=n_reports,
            by_length=numbers_from_text(by_length),
        )
        for digest, batch_id, n_users, n_reports, by_length in rows
    ]


def _batch_states(connection: sqlite3.Connection) -> dict[TaskDigest, DeliveredState]:
    rows = connection.execute(
        "SELECT task_digest, CASE WHEN task_digest IN (SELECT task_digest FROM results) "
        "THEN 'released' WHEN failure IS NOT NULL THEN 'unusable' ELSE 'staged' END "
        "FROM batches WHERE staged OR failure IS NOT NULL"
    )
    return {TaskDigest(digest): state for digest, state in rows}


def _release(
    connection: sqlite3.Connection,
    manifest: BatchManifest,
    cells: bytes,
    result: bytes,
    cost: ledger.Charge,
) -> None:
    connection.execute(
        "INSERT INTO results VALUES (?, ?, ?)", (manifest.task_digest, cells, result)
    )
    ledger.charge(connection, manifest, cost)


def _mark_unusable(
    connection: sqlite3.Connection, manifest: BatchManifest, failure: str, *, quarantined: bool
) -> None:
    connection.execute(
        "UPDATE batches SET failure = ?, quarantined = ? WHERE task_digest = ? AND batch_id = ?",
        (failure, quarantined, manifest.task_digest, manifest.batch_id),
    )


def _failure(connection: sqlite3.Connection, digest: TaskDigest) -> tuple[str, bool] | None:
    row = connection.execute(
        "SELECT failure, quarantined FROM batches WHERE task_digest = ? AND failure IS NOT NULL",
        (digest,),
    ).fetchone()
    return None if row is None else (row[0], bool(row[1]))
