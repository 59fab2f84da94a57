"""SQLite in its own thread, versions of schemas, and error messages for disk failures."""

import asyncio
import errno
import sqlite3
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from shuffledp.common.errors import DamagedStorageError, SettingsError, StorageError
from shuffledp.common.runtime import logs

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a full disk."""
_CODES: Final = {
    **dict.fromkeys(FULL, sqlite3.SQLITE_FULL),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), sqlite3.SQLITE_READONLY),
    **dict.fromkeys((errno.EISDIR, errno.ENOTDIR, errno.ENOENT), sqlite3.SQLITE_CANTOPEN),
}
"""SQLite's codes for the system's error numbers; all others mean a failing disk."""
_SENTENCES: Final = {
    sqlite3.SQLITE_FULL: "the disk of the state directory is full",
    sqlite3.SQLITE_READONLY: "the state directory is read-only",
    sqlite3.SQLITE_CANTOPEN: "a file of the state directory cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk of the state directory is failing",
    sqlite3.SQLITE_PERM: "a file of the state directory may not be read or written",
    sqlite3.SQLITE_BUSY: "a database of the state directory is in use by another process",
    sqlite3.SQLITE_LOCKED: "a database of the state directory is in use by another process",
}
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_DAMAGE: Final = "a database of the state directory is damaged"
_UNDECODABLE: Final = "Could not decode to UTF-8"
"""Start of Python's message for a text column that is not UTF-8; the error has no code."""
_PRIMARY: Final = 0xFF
"""SQLite's extended codes have the primary code in their lowest byte."""


@contextmanager
def storage_failures() -> Generator[None]:
    """Convert disk failures to StorageError, and damaged content to DamagedStorageError."""
    try:
        yield
    except sqlite3.Error as error:
        # Python's own errors, which report misuse, have no code.
        code = getattr(error, "sqlite_errorcode", -1) & _PRIMARY
        if code in _DAMAGED or str(error).startswith(_UNDECODABLE):
            raise DamagedStorageError(_DAMAGE) from error
        if code in _SENTENCES:
            raise StorageError(_SENTENCES[code]) from error
        raise
    except UnicodeDecodeError as error:  # from SQLite's message, which quotes damaged text
        raise DamagedStorageError(_DAMAGE) from error
    except OSError as error:
        code = _CODES.get(error.errno or 0, sqlite3.SQLITE_IOERR)
        raise StorageError(_SENTENCES[code]) from error


P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """
    The steps that lead to a program's schema.

    A step is a script of SQL from one version to the next. Steps are additive, so earlier
    versions keep working with a newer database while a service is upgraded.
    """

    steps: tuple[str, ...]
    """A database of version n, 0 if empty, lacks the steps after its first n. The first step may
    meet its own tables, from before versions were recorded."""
    readable_from: int = 1
    """The earliest version of a program that can use this schema."""

    @property
    def version(self) -> int:
        """The program's version."""
        return len(self.steps)

    def check(self, version: int, readable_from: int) -> None:
        """Raise SettingsError if this program is too old for a database of this version."""
        if self.version < readable_from:
            raise SettingsError(
                f"the database's schema is version {version}, readable from {readable_from}; this "
                f"program has {self.version}: upgrade it"
            )


VERSION_TABLE: Final = """
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER NOT NULL,
    readable_from INTEGER NOT NULL
);
"""
"""One row, in SQLite and PostgreSQL."""


class Database:
    """
    Runs functions on one connection, each in its own transaction, in one thread.

    When `run` returns, the function's writes are on disk (`synchronous=FULL`).
    """

    def __init__(self, path: Path, schema: Schema) -> None:
        """
        Open or create the file, and bring it to the program's schema.

        Raises SettingsError if the file's schema is too new for this program, or the path is a link
        to nothing; StorageError if the file cannot be opened, or is damaged.
        """
        self._log_has_deleted_rows = True  # an earlier run may have failed to empty it
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database")
        try:
            self._connection = self._thread.submit(_connect, path, schema).result()
        except BaseException:
            self._thread.shutdown()
            raise

    async def run(
        self,
        work: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `work(connection, ...)` in one transaction; callers may retry a StorageError."""

        def transaction() -> T:
            with storage_failures(), self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                found = work(self._connection, *args, **kwargs)
            if self._log_has_deleted_rows:
                self._merge_log()
            return found

        return await asyncio.get_running_loop().run_in_executor(self._thread, transaction)

    async def fetch(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement as `run` does, and return its rows."""
        return await self.run(lambda connection: connection.execute(statement, values).fetchall())

    async def empty_log(self) -> None:
        """
        Merge the write-ahead log into the file, so that no deleted row remains on disk.

        A failure is logged, not raised: earlier transactions stand. Later transactions try again,
        even after a restart.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._merge_log)
        if self._log_has_deleted_rows:
            logs.event("deleted rows not erased yet", {}, level="WARNING")

    def _merge_log(self) -> None:
        self._log_has_deleted_rows = True
        try:
            with storage_failures():
                row = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except StorageError:
            return
        self._log_has_deleted_rows = bool(row[0])  # 1 if another connection still reads the log

    def close(self) -> None:
        """Finish all queued transactions, and close the file."""
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()


@storage_failures()
def _connect(path: Path, schema: Schema) -> sqlite3.Connection:
    if path.is_symlink() and not path.exists():  # SQLite would create an empty file behind it
        raise SettingsError(
            f"{path} is a link to nothing: put the database back, or mount its disk"
        )
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        _prepare(connection, path, schema)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    path.chmod(0o600)
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "secure_delete=ON",
        "foreign_keys=ON",
        "recursive_triggers=ON",  # so that REPLACE fires triggers that forbid DELETE
    ):
        connection.execute(f"PRAGMA {pragma}")
    _migrate(connection, schema)
    with closing(sqlite3.connect(":memory:")) as empty:
        _migrate(empty, schema)
        for table, columns in _columns(empty).items():
            missing = columns - _columns(connection).get(table, set())
            if missing:
                raise DamagedStorageError(
                    "a database of the state directory is damaged, or belongs to another program: "
                    f"its table {table} has no column {min(missing)}"
                )


def _migrate(connection: sqlite3.Connection, schema: Schema) -> None:
    connection.executescript(VERSION_TABLE)
    found = connection.execute("SELECT version, readable_from FROM schema_version").fetchone()
    version, readable_from = found or (0, 0)
    schema.check(version, readable_from)
    if steps := schema.steps[version:]:
        numbers = f"({schema.version}, {schema.readable_from})"
        new = f"INSERT INTO schema_version VALUES {numbers};"  # noqa: S608  # two integers
        script = ("BEGIN IMMEDIATE;", *steps, "DELETE FROM schema_version;", new, "COMMIT;")
        connection.executescript("".join(script))


def _columns(connection: sqlite3.Connection) -> dict[str, set[str]]:
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {
        table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        for (table,) in tables
    }


def numbers_to_text(numbers: Sequence[int]) -> str:
    """Encode whole numbers for a database."""
    return " ".join(map(str, numbers))


def numbers_from_text(text: str) -> tuple[int, ...]:
    """Parse what `numbers_to_text` encoded; raise DamagedStorageError if it is damaged."""
    try:
        return tuple(map(int, text.split()))
    except ValueError as error:
        raise DamagedStorageError("a list of numbers in the database is damaged") from error
