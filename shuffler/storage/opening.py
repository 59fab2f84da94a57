"""Open the store in the settings."""

from common.errors import SettingsError
from common.runtime.clock import Clock
from common.runtime.metrics import ProcessMetrics
from shuffler.metrics import StoreMetrics
from shuffler.settings import ShufflerSettings
from shuffler.storage.sqlite_store import SqliteStore
from shuffler.storage.submission_store import Observer, SubmissionStore


def open_store(
    settings: ShufflerSettings,
    clock: Clock,
    process_metrics: ProcessMetrics,
    observer: Observer = lambda *_: None,
) -> SubmissionStore:
    """
    Open the store of a front-end, or of the process that begins and moves batches.

    Raises:
        SettingsError: The store cannot be used, or psycopg is not installed.
        StorageError: The state directory cannot be used.
    """
    if settings.store is None:
        return SqliteStore(settings.state_directory / "spool.sqlite", clock, observer)
    try:
        from shuffler.storage.postgres_store import PostgresStore  # noqa: PLC0415  # optional
    except ImportError as error:
        raise SettingsError("the setting store needs psycopg: install shuffledp[scale]") from error
    return PostgresStore(
        settings.store,
        clock,
        StoreMetrics(process_metrics, clock),
        observer,
        coordinator=settings.role != "front-end",
    )
