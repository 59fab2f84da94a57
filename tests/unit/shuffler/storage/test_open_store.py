import sys
from pathlib import Path
from typing import Any

import pytest

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.metrics import ProcessMetrics
from shuffledp.shuffler.metrics import METRICS
from shuffledp.shuffler.settings import ShufflerSettings
from shuffledp.shuffler.storage.open_store import open_store
from shuffledp.shuffler.storage.postgres_store import PostgresStore
from shuffledp.shuffler.storage.sqlite_store import SqliteStore
from tests.support.postgres import PostgresServer


def _settings(path: Path, **changes: Any) -> ShufflerSettings:
    return ShufflerSettings(
        state_directory=path, plaintext=True, analyzer="a:1", analyzer_identity="00", **changes
    )


def test_the_settings_choose_the_store(tmp_path: Path, postgres: PostgresServer) -> None:
    """SQLite in the state directory, unless a URI is given."""
    clock = SystemClock()
    metrics = ProcessMetrics("shuffler", METRICS, clock)
    for settings, kind in (
        (_settings(tmp_path), SqliteStore),
        (_settings(tmp_path, store=postgres.database()), PostgresStore),
    ):
        store = open_store(settings, clock, metrics)
        assert isinstance(store, kind)
        store.close()


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is an extra of the package."""
    monkeypatch.setitem(sys.modules, "shuffledp.shuffler.storage.postgres_store", None)
    clock = SystemClock()
    settings = _settings(tmp_path, store="postgresql://host/name")
    with pytest.raises(SettingsError, match=r"install shuffledp\[scale\]"):
        open_store(settings, clock, ProcessMetrics("shuffler", METRICS, clock))
