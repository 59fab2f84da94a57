import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shuffledp.common.errors import DamagedStorageError, SettingsError, StorageError
from shuffledp.common.runtime.database import Database, Schema

_TABLE = "CREATE TABLE IF NOT EXISTS t (x INTEGER);"
_SCHEMA = Schema(steps=(_TABLE,))


def _insert(connection: sqlite3.Connection, x: int, *, fail: bool = False) -> None:
    connection.execute("INSERT INTO t VALUES (?)", (x,))
    if fail:
        raise RuntimeError


def _all(connection: sqlite3.Connection) -> list[int]:
    return [row[0] for row in connection.execute("SELECT x FROM t")]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Yield a database of one table."""
    made = Database(tmp_path / "d.sqlite", _SCHEMA)
    yield made
    made.close()


async def test_work_is_atomic_durable_and_private(database: Database, tmp_path: Path) -> None:
    """A failed transaction leaves nothing; write-ahead log, full synchronization, mode 0600."""
    await database.run(_insert, 1)
    with pytest.raises(RuntimeError):
        await database.run(_insert, 2, fail=True)

    def pragma(connection: sqlite3.Connection, name: str) -> object:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    assert [1] == await database.run(_all)
    assert "wal" == await database.run(pragma, "journal_mode")
    assert 2 == await database.run(pragma, "synchronous")
    assert (tmp_path / "d.sqlite").stat().st_mode & 0o777 == 0o600


async def test_a_full_file_refuses_until_there_is_room(database: Database) -> None:
    """The error is UNAVAILABLE; the transaction that did not fit leaves nothing."""

    def limit(connection: sqlite3.Connection, pages: int) -> None:
        connection.execute(f"PRAGMA max_page_count={pages}").fetchone()

    def insert(connection: sqlite3.Connection, count: int) -> None:
        connection.executemany("INSERT INTO t VALUES (?)", [(10**18,)] * count)

    await database.run(limit, 5)
    await database.run(insert, 10)
    with pytest.raises(StorageError, match="full") as caught:
        await database.run(insert, 10_000)
    await database.run(limit, 1000)
    await database.run(insert, 10_000)

    assert "UNAVAILABLE" == caught.value.status
    assert 10_010 == len(await database.run(_all))


async def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    """A damaged page, an undecodable table name and a missing column each raise an error."""
    path = tmp_path / "page.sqlite"
    database = Database(path, _SCHEMA)
    await database.run(_insert, 1)
    database.close()
    content = bytearray(path.read_bytes())
    content[8192:12288] = b"\xff" * 4096
    path.write_bytes(content)
    database = Database(path, _SCHEMA)
    with pytest.raises(DamagedStorageError, match="damaged"):
        await database.run(_all)
    database.close()

    path = tmp_path / "column.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_TABLE.replace("x INTEGER", "y INTEGER"))
    with pytest.raises(DamagedStorageError, match="table t has no column x"):
        Database(path, _SCHEMA)

    path = tmp_path / "name.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE somebody (x INTEGER)")
    connection.commit()
    connection.close()
    path.write_bytes(
        path.read_bytes().replace(b"CREATE", b"\x8eREATE").replace(b"somebody", b"\x8eomebody")
    )

    with pytest.raises(DamagedStorageError, match="is damaged"):
        Database(path, _SCHEMA)


async def test_deleted_rows_are_in_no_file_once_the_log_is_empty(tmp_path: Path) -> None:
    """Deleting alone leaves them in the log; so does a reader, until a later transaction."""
    path = tmp_path / "d.sqlite"

    def left() -> bytes:
        return b"".join(file.read_bytes() for file in tmp_path.iterdir())

    database = Database(path, Schema(steps=("CREATE TABLE IF NOT EXISTS texts (text TEXT);",)))
    database._thread.submit(database._connection.execute, "PRAGMA busy_timeout=0").result()
    await database.run(lambda c: c.execute("INSERT INTO texts VALUES ('to be forgotten')"))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT text FROM texts").fetchall()
        await database.run(lambda c: c.execute("DELETE FROM texts"))
        await database.empty_log()
        assert b"to be forgotten" in left()
    await database.run(lambda c: c.execute("SELECT text FROM texts"))
    assert b"to be forgotten" not in left()
    database.close()


async def test_a_read_only_or_locked_file_refuses_until_it_is_free(
    database: Database, tmp_path: Path
) -> None:
    """A disk may be remounted read-only, and a backup may lock the file."""

    def pragma(text: str) -> None:
        database._thread.submit(database._connection.execute, f"PRAGMA {text}").result()

    pragma("query_only=1")
    with pytest.raises(StorageError, match="read-only"):
        await database.run(_insert, 1)
    pragma("query_only=0")
    pragma("busy_timeout=1")
    with closing(sqlite3.connect(tmp_path / "d.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="in use by another process"):
            await database.run(_insert, 1)
        other.execute("ROLLBACK")
    await database.run(_insert, 2)

    assert [2] == await database.run(_all)


def _versions(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    return connection.execute("SELECT version, readable_from FROM schema_version").fetchall()


@pytest.mark.parametrize("recorded", [False, True])
async def test_an_older_database_gets_the_missing_steps_and_keeps_its_rows(
    tmp_path: Path, *, recorded: bool
) -> None:
    """So does a database from before versions were recorded."""
    path = tmp_path / "d.sqlite"
    old = Database(path, _SCHEMA)
    await old.run(_insert, 1)
    if not recorded:
        await old.run(lambda connection: connection.execute("DROP TABLE schema_version"))
    old.close()
    added = "ALTER TABLE t ADD COLUMN y INTEGER NOT NULL DEFAULT 5;"
    for _ in range(2):
        new = Database(path, Schema(steps=(_TABLE, added)))
        found = await new.run(lambda connection: connection.execute("SELECT * FROM t").fetchall())
        assert [(1, 5)] == found
        assert [(2, 1)] == await new.run(_versions)
        new.close()


async def test_a_program_that_is_too_old_refuses_the_database(tmp_path: Path) -> None:
    """An older program uses a newer database if that says so, and leaves its version."""
    path = tmp_path / "d.sqlite"
    Database(path, Schema(steps=(_TABLE, "", ""), readable_from=2)).close()
    able = Database(path, Schema(steps=(_TABLE, "")))
    assert [(3, 2)] == await able.run(_versions)
    able.close()
    with pytest.raises(SettingsError) as caught:
        Database(path, _SCHEMA)

    expected = "the database's schema is version 3, readable from 2; this program has 1: upgrade it"
    assert expected == str(caught.value)


def test_a_link_to_no_database_is_refused(tmp_path: Path) -> None:
    """An empty database behind it would have forgotten budgets, tokens and charges."""
    (tmp_path / "d.sqlite").symlink_to("missing.sqlite")
    with pytest.raises(SettingsError, match="link to nothing"):
        Database(tmp_path / "d.sqlite", _SCHEMA)

    assert not (tmp_path / "missing.sqlite").exists()
