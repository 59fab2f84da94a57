"""Read a batch's groups from the store in a worker process."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from common.messages.batch import BatchId
from common.runtime.database import storage_failures


@dataclass(frozen=True, slots=True)
class SqliteGroups:
    """The groups in the shuffler's SQLite database, which its own process keeps open."""

    path: Path

    def read(self, batch_id: BatchId, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """
        Yield the groups with numbers of `first` to `last`, without it, in ascending order.

        Raises StorageError if the database cannot be read.
        """
        with (
            storage_failures(),
            closing(
                sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
            ) as connection,
        ):
            yield from connection.execute(
                "SELECT number, sealed FROM submission_groups "
                "WHERE batch_id = ? AND number BETWEEN ? AND ? ORDER BY number",
                (batch_id, first, last - 1),
            )
