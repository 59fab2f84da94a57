"""Open the store in the settings."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.runtime.metrics import ProcessMetrics
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.shuffler.metrics import StoreMetrics
from shuffledp.shuffler.settings import ShufflerSettings
from shuffledp.shuffler.storage.sqlite_store import SqliteGroups, SqliteStore
from shuffledp.shuffler.storage.submission_store import GroupSource, SubmissionStore

_SQLITE: Final = "spool.sqlite"


def open_store(
    settings: ShufflerSettings, clock: Clock, process_metrics: ProcessMetrics
) -> SubmissionStore:
    """
    Open the store of a front-end, or of the process that begins and moves batches.

    Raises:
        SettingsError: The store is missing or cannot be used, or psycopg is not installed.
        StorageError: The state directory cannot be used.
    """
    if settings.store is None:
        state = StateDirectory.open(settings.state_directory)
        return SqliteStore(state.database(_SQLITE), clock)
    with _psycopg_needed():
        from shuffledp.shuffler.storage.postgres_store import PostgresStore  # noqa: PLC0415  # optional
    return PostgresStore(
        settings.store,
        clock,
        StoreMetrics(process_metrics),
        coordinator=settings.role != "front-end",
    )


def open_groups(settings: ShufflerSettings) -> GroupSource:
    """Return a reader of the store's groups, for a worker. Raises SettingsError without psycopg."""
    if settings.store is None:
        return SqliteGroups(settings.state_directory / _SQLITE)
    with _psycopg_needed():
        from shuffledp.shuffler.storage.postgres_store import PostgresGroups  # noqa: PLC0415  # optional
    return PostgresGroups(settings.store)


@contextmanager
def _psycopg_needed() -> Generator[None]:
    try:
        yield
    except ImportError as error:
        raise SettingsError("the setting store needs psycopg: install shuffledp[scale]") from error
