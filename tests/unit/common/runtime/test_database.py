import sqlite3
from pathlib import Path

import pytest

from common.errors import SettingsError
from common.runtime.database import Database

_SCHEMA = "CREATE TABLE IF NOT EXISTS t (x INTEGER);"


def _insert(connection: sqlite3.Connection, x: int, *, fail: bool = False) -> None:
    connection.execute("INSERT INTO t VALUES (?)", (x,))
    if fail:
        raise RuntimeError


def _all(connection: sqlite3.Connection) -> list[int]:
    return [row[0] for row in connection.execute("SELECT x FROM t")]


async def test_work_is_done_whole_or_not_at_all(tmp_path: Path) -> None:
    """What raises leaves nothing behind."""
    database = Database(tmp_path / "d.sqlite", _SCHEMA)
    await database.run(_insert, 1)
    with pytest.raises(RuntimeError):
        await database.run(_insert, 2, fail=True)

    assert [1] == await database.run(_all)
    database.close()


async def test_the_file_is_durable_and_closed_to_others(tmp_path: Path) -> None:
    """Write-ahead log, full synchronisation, mode 0600."""
    database = Database(tmp_path / "d.sqlite", _SCHEMA)

    def pragma(connection: sqlite3.Connection, name: str) -> object:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    assert "wal" == await database.run(pragma, "journal_mode")
    assert 2 == await database.run(pragma, "synchronous")
    assert (tmp_path / "d.sqlite").stat().st_mode & 0o777 == 0o600
    database.close()


@pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 3\0" + bytes(4096)])
def test_a_file_that_is_no_database_is_named(tmp_path: Path, content: bytes) -> None:
    """A service says which file it could not open, and does not start."""
    (tmp_path / "d.sqlite").write_bytes(content)

    with pytest.raises(SettingsError, match=r"d\.sqlite cannot be opened as a database"):
        Database(tmp_path / "d.sqlite", _SCHEMA)
