"""Refused submissions are counted by cause, and the counts survive a restart."""

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.errors import StorageError
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.messages.submission import Outcome
from shuffledp.shuffler.refusals import RefusalCounts
from shuffledp.shuffler.storage import submissions as submission_table
from shuffledp.shuffler.storage.sqlite_store import SqliteStore
from tests.support.tasks import published

_BATCH = BatchId(b"b" * 16)


class _FailingStore(SqliteStore):
    """A store that saves no counts while it has a failure."""

    failure: Exception | None = None

    async def add_refusals(self, counts: Mapping[BatchId, Counter[Outcome]]) -> None:
        if self.failure:
            raise self.failure
        await super().add_refusals(counts)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[_FailingStore]:
    """A store with a batch."""
    opened = _FailingStore(tmp_path / "spool.sqlite", ManualClock())
    await opened.open_batch(_BATCH, published().signed)
    yield opened
    opened.close()


def _reported(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    """List the names of the errors of an event in the log."""
    return [record.fields["error"] for record in caplog.records if record.message == event]  # type: ignore[attr-defined]  # of our own records


async def test_counts_add_up_and_survive_a_crash(store: SqliteStore, tmp_path: Path) -> None:
    """Stored submissions, unsaved counts, and outcomes of a later version do not count."""
    refusals = RefusalCounts(store)
    refusals.count(_BATCH, [Outcome.MALFORMED, Outcome.STORED, Outcome.REPEATED])
    await refusals.save()
    refusals.count(_BATCH, [Outcome.MALFORMED])
    await refusals.save()
    refusals.count(_BATCH, [Outcome.CONFLICT])
    unknown = "INSERT INTO refusals VALUES (?, 'of a later version', 1)"
    await store._database.run(lambda connection: connection.execute(unknown, (_BATCH,)))
    again = SqliteStore(tmp_path / "spool.sqlite", ManualClock())
    later = RefusalCounts(again)
    await later.load()
    later.count(_BATCH, [Outcome.REPEATED])
    await later.save()
    again.close()

    expected = Counter({Outcome.MALFORMED: 2, Outcome.REPEATED: 2})
    assert expected == later.of(_BATCH) == (await store.refusals())[_BATCH]


async def _saved(store: SqliteStore, expected: int) -> None:
    async with asyncio.timeout(5):
        while (await store.refusals()).get(_BATCH, Counter()).total() != expected:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "failure",
    [StorageError("the disk is full"), sqlite3.IntegrityError("no batch"), RuntimeError()],
    ids=lambda failure: type(failure).__name__,
)
async def test_a_failed_save_is_retried_and_logged_once_and_the_last_one_given_up(
    store: _FailingStore, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Later saves succeed. If the last one fails, the service stops, and the log says so."""
    store.failure = failure
    refusals = RefusalCounts(store)
    saving = asyncio.create_task(refusals.run(pause=0.01))
    refusals.count(_BATCH, [Outcome.CONFLICT])
    await asyncio.sleep(0.05)
    store.failure = None
    await _saved(store, 1)
    refusals.count(_BATCH, [Outcome.CONFLICT])
    await _saved(store, 2)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)

    store.failure = failure
    refusals.count(_BATCH, [Outcome.CONFLICT])
    await refusals.save_last()

    for event in ("refusals not saved yet", "refusals lost"):
        assert [type(failure).__name__] == _reported(caplog, event)


async def test_nothing_is_saved_without_new_counts(store: SqliteStore) -> None:
    """A service that waits does nothing."""
    refusals = RefusalCounts(store)
    saving = asyncio.create_task(refusals.run(pause=0.0))
    refusals.count(_BATCH, [Outcome.STORED])
    await asyncio.sleep(0.05)
    assert refusals._saving is None
    refusals.count(_BATCH, [Outcome.CONFLICT])
    await _saved(store, 1)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)


@pytest.mark.parametrize("begun", [False, True])
async def test_counts_being_saved_while_the_service_stops_are_counted_once(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    """The save may have begun or not."""
    refusals = RefusalCounts(store)
    free = threading.Event()
    save = submission_table.add_refusals

    def save_slowly(
        connection: sqlite3.Connection, counts: Mapping[BatchId, Counter[Outcome]]
    ) -> None:
        free.wait()
        save(connection, counts)

    if begun:
        monkeypatch.setattr(submission_table, "add_refusals", save_slowly)
    else:
        store._database._thread.submit(free.wait)  # something else is being written
    saving = asyncio.create_task(refusals.run(pause=0.0))
    refusals.count(_BATCH, [Outcome.CONFLICT])
    await asyncio.sleep(0.05)
    saving.cancel()
    await asyncio.sleep(0.05)
    free.set()
    await asyncio.gather(saving, return_exceptions=True)
    await refusals.save_last()

    assert Counter({Outcome.CONFLICT: 1}) == (await store.refusals())[_BATCH]
