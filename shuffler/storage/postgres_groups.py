"""Read a batch's groups from PostgreSQL in a worker process."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from common.messages.batch import BatchId
from shuffler.storage.postgres_connection import connect
from shuffler.storage.postgres_failures import postgres_failures
from shuffler.storage.postgres_schema import with_tables

_ROWS_AT_ONCE: Final = 16
"""Groups fetched together; a group of a bulk call may have a megabyte."""


@dataclass(frozen=True, slots=True)
class PostgresGroups:
    """The groups in the shuffler's PostgreSQL database."""

    uri: str = field(repr=False)

    def read(self, batch_id: BatchId, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """
        Yield the groups with numbers of `first` to `last`, without it, in ascending order.

        Raises StorageError if the database cannot be read.
        """
        query = "SELECT number, sealed FROM {groups} WHERE number BETWEEN %s AND %s ORDER BY number"
        with (
            postgres_failures(),
            connect(self.uri) as connection,
            connection.transaction(),
            connection.cursor("groups", binary=True) as cursor,
        ):
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(with_tables(query, batch_id), (first, last - 1))
            yield from cursor
