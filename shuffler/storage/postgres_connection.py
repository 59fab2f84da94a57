"""
PostgreSQL in its own thread, like common/runtime/database.py for SQLite, and its schema.

Arrays of 16-byte values can be parameters of statements.
"""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import numpy as np
import psycopg
from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import LockNotAvailable, ReadOnlySqlTransaction
from psycopg.pq import Format

from shuffledp.common.dates import utc
from shuffledp.common.errors import DamagedStorageError, SettingsError, StorageError
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.runtime.confirmed_clock import TOLERANCE
from shuffledp.common.runtime.database import VERSION_TABLE, Schema
from shuffledp.shuffler.metrics import StoreMetrics
from shuffledp.shuffler.storage.submission_store import MAY_BE_SENT

P = ParamSpec("P")
T = TypeVar("T")

_BYTES: Final = 16
_UUID_OID: Final = 2950
_UUIDS_OID: Final = 2951
_ELEMENT: Final = np.dtype([("length", ">i4"), ("value", f"V{_BYTES}")])


class Uuids(bytes):
    """Values of 16 bytes each, for a parameter of type uuid[]."""

    __slots__ = ()


class _UuidsDumper(Dumper):
    """PostgreSQL's binary array, without an object of Python for each value."""

    format = Format.BINARY
    oid = _UUIDS_OID

    def dump(self, obj: Uuids) -> Buffer:
        elements = np.empty(len(obj) // _BYTES, dtype=_ELEMENT)
        elements["length"] = _BYTES
        elements["value"] = np.frombuffer(obj, dtype=f"V{_BYTES}")
        header = np.array([1, 0, _UUID_OID, len(elements), 1], dtype=">i4")
        return header.tobytes() + elements.tobytes()


_CONNECTION: Final = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "application_name": "shuffledp",
}
"""Defaults of libpq's parameters: a server that vanished is noticed within 25 seconds."""
_SESSION: Final = (
    "SET statement_timeout = '120s'",
    "SET lock_timeout = '30s'",
    # A state is read after the batch's lock was taken, not as of the transaction's begin.
    "SET default_transaction_isolation = 'read committed'",
    # A process that vanished in the middle of a transaction must not hold a batch for ever.
    "SET idle_in_transaction_session_timeout = '30s'",
    # An acknowledged submission is durable. Stricter settings of the server stay.
    (
        "SELECT set_config('synchronous_commit', 'on', false) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    ),
)
_COORDINATOR_LOCK: Final = (
    "SET LOCAL lock_timeout = '3s'",  # the server may just be ending the session before
    "SELECT pg_advisory_lock(1397114448, 1)",
)
"""A space of its own: the locks of batches have one number of 64 bits."""
_PAUSE: Final = 1.0
"""Seconds between attempts to connect; calls in between fail at once."""


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


class PostgresConnection:
    """
    Runs functions on one connection, each in its own transaction, in one thread.

    A lost connection is opened again at a later call. The coordinator's connection holds a lock of
    its session, so that no other coordinator can write; it is taken again with each connection.
    """

    def __init__(self, uri: str, clock: Clock, metrics: StoreMetrics, *, coordinator: bool) -> None:
        """
        Connect; the coordinator also brings the database to the program's schema.

        Raises SettingsError if the server cannot be reached, its schema does not fit this program,
        or another coordinator is connected.
        """
        self._uri = uri
        self._clock = clock
        self._metrics = metrics
        self._coordinator = coordinator
        self._connection: Connection | None = None
        self._failure: str | None = None
        """The reason why the last attempt to connect failed."""
        self._not_before = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="postgres")
        try:
            self._thread.submit(self._connected).result()
        except StorageError as error:
            self._thread.shutdown()
            cause = str(error.__cause__ or "").strip().partition("\n")[0]
            raise SettingsError(f"{error}{cause and f' ({cause})'}") from error
        except BaseException:
            self._thread.shutdown()
            raise

    async def run(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work(connection, ...)` in one transaction; callers may retry a StorageError."""

        def transaction() -> T:
            connection = self._connected()
            started = self._clock.elapsed()
            try:
                with postgres_failures(), connection.transaction():
                    found = work(connection, *args, **kwargs)
            except StorageError as error:
                if connection.closed or isinstance(error.__cause__, ReadOnlySqlTransaction):
                    self._disconnect()  # after a failover another server accepts writes
                raise
            self._metrics.record_commit(self._clock.elapsed() - started)
            return found

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, transaction)
        except SettingsError as error:  # the schema was upgraded beyond this running program
            raise StorageError(str(error)) from error

    async def fetch(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement, with a ? for each value, as `run` does, and return its rows."""

        def fetch(connection: Connection) -> list[tuple[Any, ...]]:
            return connection.execute(statement.replace("?", "%s"), values, binary=True).fetchall()

        return await self.run(fetch)

    def _connected(self) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        if self._failure is not None and self._clock.elapsed() < self._not_before:
            raise StorageError(self._failure)
        self._not_before = self._clock.elapsed() + _PAUSE
        try:
            with postgres_failures():
                connection = connect(self._uri, self._prepare)
        except StorageError as error:
            self._failure = str(error)
            raise
        self._failure = None
        self._connection = connection
        self._metrics.record_connection(connected=True)
        return connection

    def _prepare(self, connection: Connection) -> None:
        with connection.transaction():
            if self._coordinator:
                _lock(connection)
                migrate(connection)
            else:
                check_schema(connection)
        self._compare_clocks(connection)

    def _compare_clocks(self, connection: Connection) -> None:
        """Log if the server's clock, by which submissions are late, is not this process's."""
        [(found,)] = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        expected = self._clock.now()
        if abs(found - expected) > TOLERANCE:
            event = "store's clock disagrees: it decides which submissions are late"
            logs.event(event, {"clock": utc(found), "expected": utc(expected)}, level="ERROR")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._metrics.record_connection(connected=False)
            logs.event("store disconnected", {}, level="WARNING")

    def close(self) -> None:
        """Finish all queued transactions, and disconnect."""
        if self._connection is not None:
            self._thread.submit(self._connection.close).result()
        self._thread.shutdown()


def _lock(connection: Connection) -> None:
    """Take the coordinator's lock, or raise StorageError."""
    try:
        for statement in _COORDINATOR_LOCK:
            connection.execute(statement)
    except LockNotAvailable:
        raise StorageError(
            "another coordinator uses this store: stop it, or wait until the server notices its end"
        ) from None


def connect(uri: str, prepare: Callable[[Connection], None] = lambda _: None) -> Connection:
    """
    Open a connection without transactions of its own, and `prepare` it.

    Raises SettingsError for a malformed URI, which is not quoted as it may hold a password; else
    psycopg.Error.
    """
    try:
        given = conninfo_to_dict(uri)
    except psycopg.ProgrammingError:
        raise SettingsError("store is not a valid postgresql:// URI") from None
    defaults = {name: value for name, value in _CONNECTION.items() if name not in given}
    if "," in str(given.get("host", "")):
        defaults.setdefault("target_session_attrs", "read-write")
    connection = psycopg.connect(make_conninfo(uri, **defaults), autocommit=True)
    connection.adapters.register_dumper(Uuids, _UuidsDumper)
    try:
        for statement in _SESSION:
            connection.execute(statement)
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


SCHEMA: Final = Schema(
    steps=(
        """
CREATE TABLE batches (
    batch_id uuid PRIMARY KEY,
    task_digest bytea NOT NULL UNIQUE,
    task bytea NOT NULL,
    signature bytea NOT NULL,
    state text NOT NULL,
    n_reports bigint NOT NULL DEFAULT 0,
    shuffle_seconds double precision NOT NULL DEFAULT 0
);
CREATE TABLE users (
    batch_id uuid NOT NULL REFERENCES batches,
    writer uuid NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (batch_id, writer)
) WITH (fillfactor = 50);
CREATE TABLE refusals (
    batch_id uuid NOT NULL REFERENCES batches,
    writer uuid NOT NULL,
    outcome text NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (batch_id, writer, outcome)
) WITH (fillfactor = 50);
""",
        "ALTER TABLE batches ADD COLUMN by_length bigint[] NOT NULL DEFAULT '{}'",
        MAY_BE_SENT,
        "ALTER TABLE batches ADD COLUMN part_hashes bytea NOT NULL DEFAULT ''",
    )
)
"""`writer` is a random number of each process that writes; its rows of a batch add up."""


def migrate(connection: Connection) -> None:
    """Bring the database to this program's schema. Run by the coordinator, which is alone."""
    connection.execute(VERSION_TABLE)
    version = _checked_version(connection)
    for step in SCHEMA.steps[version:]:
        connection.execute(step)
    if version < SCHEMA.version:
        connection.execute("DELETE FROM schema_version")
        numbers = (SCHEMA.version, SCHEMA.readable_from)
        connection.execute("INSERT INTO schema_version VALUES (%s, %s)", numbers)


def check_schema(connection: Connection) -> None:
    """
    Check that a process which does not migrate can use the database.

    Raises:
        SettingsError: The schema is too new for this program.
        StorageError: The schema is older than the program, until the coordinator is upgraded.
    """
    exists = connection.execute("SELECT to_regclass('schema_version') IS NOT NULL").fetchone()
    version = _checked_version(connection) if exists == (True,) else 0
    if version < SCHEMA.version:
        raise StorageError(
            f"the store's schema is version {version}; this program needs {SCHEMA.version}: start "
            "or upgrade the coordinator first"
        )


def _checked_version(connection: Connection) -> int:
    found = connection.execute("SELECT version, readable_from FROM schema_version").fetchone()
    version: int
    version, readable_from = found or (0, 0)
    SCHEMA.check(version, readable_from)
    return version
