"""A database of the analyzer's first version, with batches staged in chunks."""

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from common.messages.batch import BatchManifest

_FORMER: Final = """
DROP TABLE schema_version;
DROP TABLE parts;
DROP TABLE batches;
CREATE TABLE batches (
    task_digest BLOB PRIMARY KEY REFERENCES tasks,
    batch_id BLOB NOT NULL UNIQUE,
    n_users INTEGER NOT NULL,
    n_reports INTEGER NOT NULL,
    staged INTEGER NOT NULL DEFAULT 0,
    failure TEXT
) WITHOUT ROWID;
CREATE TABLE chunks (
    batch_id BLOB NOT NULL,
    position INTEGER NOT NULL,
    sealed_reports BLOB NOT NULL,
    PRIMARY KEY (batch_id, position)
) WITHOUT ROWID;
CREATE TABLE staged_hashes (
    batch_id BLOB PRIMARY KEY,
    staged_hash BLOB NOT NULL
) WITHOUT ROWID;
"""


def make_former(database: Path) -> None:
    """Give a database without batches the tables of the first version."""
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(_FORMER)


def stage_formerly(
    database: Path, manifest: BatchManifest, chunks: Sequence[bytes], *, staged: bool = True
) -> None:
    """Store a batch as the first version did, with a commitment that has no salt."""
    described = (manifest.batch_id, manifest.n_users, manifest.n_reports, staged)
    whole = hashlib.blake2b(b"".join(chunks), digest_size=32).digest()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "INSERT INTO batches VALUES (?, ?, ?, ?, ?, NULL)", (manifest.task_digest, *described)
        )
        connection.executemany(
            "INSERT INTO chunks VALUES (?, ?, ?)",
            [(manifest.batch_id, place, chunk) for place, chunk in enumerate(chunks)],
        )
        if staged:
            connection.execute(
                "INSERT INTO staged_hashes VALUES (?, ?)", (manifest.batch_id, whole)
            )
