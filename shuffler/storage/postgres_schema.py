"""The tables of the shuffler's PostgreSQL store, and the names of each batch's own tables."""

from typing import Final, LiteralString

from psycopg import Connection, sql

from common.errors import StorageError
from common.messages.batch import BatchId
from common.runtime.database import VERSION_TABLE, Schema
from shuffler.storage.submission_store import MAY_BE_SENT

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
    )
)
"""`writer` is a random number of each process that writes; its rows of a batch add up."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS {tags} (tag uuid PRIMARY KEY, content uuid NOT NULL);
CREATE TABLE IF NOT EXISTS {groups} (number bigint PRIMARY KEY, sealed bytea NOT NULL);
CREATE TABLE IF NOT EXISTS {tokens} (token uuid PRIMARY KEY);
ALTER TABLE {groups} ALTER COLUMN sealed SET STORAGE EXTERNAL;
"""
_KINDS: Final = ("tags", "groups", "tokens")


def with_tables(statement: LiteralString, batch_id: BatchId) -> sql.Composed:
    """Return a statement with the names of a batch's tables for {tags}, {groups} and {tokens}."""
    names = {kind: sql.Identifier(f"{kind}_{batch_id.hex()}") for kind in _KINDS}
    return sql.SQL(statement).format(**names)


def create_tables(connection: Connection, batch_id: BatchId) -> None:
    """Create a batch's tables, unless they exist. Sealed groups cannot be compressed."""
    connection.execute(with_tables(_TABLES, batch_id))


def drop_tables(connection: Connection, batch_id: BatchId) -> None:
    """Drop a batch's tables with all submissions. Idempotent."""
    connection.execute(with_tables("DROP TABLE IF EXISTS {tags}, {groups}, {tokens}", batch_id))


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


def check_unchanged(readable_from: int) -> None:
    """Raise StorageError if the schema was upgraded beyond this running program."""
    if readable_from > SCHEMA.version:
        raise StorageError(
            f"the store's schema is readable from {readable_from}; this program has "
            f"{SCHEMA.version}: upgrade it"
        )
