"""A shuffler's database, looked at beside the shuffler that has it open."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any


def rows(path: Path, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Give what a query finds of what is committed."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query, parameters).fetchall()


def change(path: Path, statement: str, *parameters: object) -> None:
    """Change what is stored, as somebody may who has the disk."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, parameters)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep everybody else from committing anything, for as long as a block runs."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def written_anywhere(folder: Path) -> bytes:
    """Give all that lies in the files of a folder, one file after the other."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
