"""Error messages for failures of the shuffler's PostgreSQL server."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import psycopg

from common.errors import DamagedStorageError, StorageError

_SERVER: Final = "the PostgreSQL server of the shuffler's store"
_LOST: Final = f"{_SERVER} does not answer, or the connection is lost"
_READ_ONLY: Final = f"{_SERVER} is read-only: a standby, as after a failover"
_BUSY: Final = f"{_SERVER} did not answer in time"
_SENTENCES: Final = {
    "53100": f"the disk of {_SERVER} is full",
    "53200": f"{_SERVER} has no memory left",
    "53300": f"{_SERVER} has no connection left",
    "25006": _READ_ONLY,
    "57014": _BUSY,  # statement_timeout
    "55P03": _BUSY,  # lock_timeout
    "40P01": f"{_SERVER} ended a transaction that blocked another",
    "40001": f"{_SERVER} ended a transaction that conflicted with another",
    "58030": f"the disk of {_SERVER} is failing",
}
_DAMAGED: Final = frozenset({"XX001", "XX002"})
_STANDBY: Final = ("session is read-only", "hot standby")
"""Parts of libpq's messages if no server of the URI accepts writes; they have no code."""


@contextmanager
def postgres_failures() -> Generator[None]:
    """Convert the server's failures to StorageError, which names the cause but no address."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate in _DAMAGED:
            raise DamagedStorageError(f"the data of {_SERVER} is damaged") from error
        if error.sqlstate in _SENTENCES:
            raise StorageError(_SENTENCES[error.sqlstate]) from error
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            standby = any(part in str(error) for part in _STANDBY)
            raise StorageError(_READ_ONLY if standby else _LOST) from error
        raise
