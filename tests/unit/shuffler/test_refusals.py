"""What a batch did not take is counted, by cause, and outlives a restart."""

import asyncio
import sqlite3
import threading
from collections import Counter
from pathlib import Path

import pytest

from common.errors import StorageError
from common.messages.batch import BatchId
from common.messages.submission import Outcome
from shuffler.metrics import RefusalCounts
from shuffler.storage import submissions as submission_table
from shuffler.storage.spool import Spool
from tests.support.tasks import published

_BATCH = BatchId(b"b" * 16)


async def _spool(path: Path) -> Spool:
    spool = Spool(path / "spool.sqlite")
    await spool.open_batch(_BATCH, published().signed)
    return spool


async def test_counts_add_up_and_outlive_a_restart(tmp_path: Path) -> None:
    """Stored submissions are not among them: those are the batch's users."""
    spool = await _spool(tmp_path)
    refusals = RefusalCounts(spool)
    refusals.count(_BATCH, [Outcome.MALFORMED, Outcome.STORED, Outcome.REPEATED])
    refusals.count(_BATCH, [Outcome.STORED])
    await refusals.save()
    refusals.count(_BATCH, [Outcome.MALFORMED])
    await refusals.save()
    spool.close()
    again = Spool(tmp_path / "spool.sqlite")
    found = await RefusalCounts(again).of(_BATCH)
    again.close()

    assert Counter({Outcome.MALFORMED: 2, Outcome.REPEATED: 1}) == found


class _FullDisk(Spool):
    """A spool whose disk is full, or fails in some other way, until it is told otherwise."""

    full = True
    failure: Exception = StorageError("the disk is full")

    async def add_refusals(self, refused: dict[BatchId, Counter[Outcome]]) -> None:  # type: ignore[override]  # narrower is enough
        if self.full:
            raise self.failure
        await super().add_refusals(refused)


_FAILURES = pytest.mark.parametrize(
    "failure",
    [StorageError("the disk is full"), sqlite3.IntegrityError("no batch"), RuntimeError()],
    ids=lambda failure: type(failure).__name__,
)
"""A disk may do what nobody foresaw."""


def _reported(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    """List the names of the errors of an event in the log."""
    return [record.fields["error"] for record in caplog.records if record.message == event]  # type: ignore[attr-defined]  # of our own records


@_FAILURES
async def test_a_full_disk_forgets_no_count(tmp_path: Path, failure: Exception) -> None:
    """What could not be written is written the next time, with what came meanwhile."""
    spool = _FullDisk(tmp_path / "spool.sqlite")
    spool.failure = failure
    await spool.open_batch(_BATCH, published().signed)
    refusals = RefusalCounts(spool)
    refusals.count(_BATCH, [Outcome.CONFLICT])
    with pytest.raises(type(failure)):
        await refusals.save()
    refusals.count(_BATCH, [Outcome.CONFLICT])
    spool.full = False
    await refusals.save()
    found = await spool.refusals(_BATCH)
    spool.close()

    assert Counter({Outcome.CONFLICT: 2}) == found


async def test_counts_are_told_though_they_cannot_be_written(tmp_path: Path) -> None:
    """The operator looks just when the disk is full: what is written, and what is not."""
    spool = _FullDisk(tmp_path / "spool.sqlite")
    await spool.open_batch(_BATCH, published().signed)
    refusals = RefusalCounts(spool)
    await Spool.add_refusals(spool, {_BATCH: Counter({Outcome.CONFLICT: 1})})
    refusals.count(_BATCH, [Outcome.CONFLICT, Outcome.MALFORMED])
    found = await refusals.of(_BATCH)
    spool.close()

    assert Counter({Outcome.CONFLICT: 2, Outcome.MALFORMED: 1}) == found


async def test_a_count_is_told_once_while_it_is_being_written(tmp_path: Path) -> None:
    """Whichever of the two is asked for first."""
    spool = await _spool(tmp_path)
    refusals = RefusalCounts(spool)
    refusals.count(_BATCH, [Outcome.CONFLICT])
    before, _, after = await asyncio.gather(
        refusals.of(_BATCH), refusals.save(), refusals.of(_BATCH)
    )
    spool.close()

    assert Counter({Outcome.CONFLICT: 1}) == before == after


async def _saved(spool: Spool, expected: int) -> None:
    async with asyncio.timeout(5):
        while (await spool.refusals(_BATCH)).total() != expected:
            await asyncio.sleep(0.01)


@_FAILURES
async def test_counts_are_written_again_and_again(
    tmp_path: Path, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """A writing that failed is not the last one, and is in the log once."""
    spool = _FullDisk(tmp_path / "spool.sqlite")
    spool.failure = failure
    await spool.open_batch(_BATCH, published().signed)
    refusals = RefusalCounts(spool, pause=0.01)
    saving = asyncio.create_task(refusals.run())
    refusals.count(_BATCH, [Outcome.CONFLICT])
    await asyncio.sleep(0.05)
    spool.full = False
    await _saved(spool, 1)
    refusals.count(_BATCH, [Outcome.CONFLICT])
    await _saved(spool, 2)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    spool.close()

    assert [type(failure).__name__] == _reported(caplog, "refusals not saved yet")


@_FAILURES
async def test_counts_that_cannot_be_written_stop_no_stopping(
    tmp_path: Path, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """They are lost, and the log says so."""
    spool = _FullDisk(tmp_path / "spool.sqlite")
    spool.failure = failure
    refusals = RefusalCounts(spool)
    refusals.count(_BATCH, [Outcome.CONFLICT])
    await refusals.save_last()
    spool.close()

    assert [type(failure).__name__] == _reported(caplog, "refusals lost")


@pytest.mark.parametrize("begun", [False, True])
async def test_what_is_being_written_when_the_service_stops_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    """Neither forgotten with a writing that waits, nor written again after one that had begun."""
    spool = await _spool(tmp_path)
    refusals = RefusalCounts(spool, pause=0.0)
    free = threading.Event()
    add = submission_table.add_refusals

    def add_slowly(
        connection: sqlite3.Connection, refused: dict[BatchId, Counter[Outcome]]
    ) -> None:
        free.wait()
        add(connection, refused)

    if begun:
        monkeypatch.setattr(submission_table, "add_refusals", add_slowly)
    else:
        spool._database._thread.submit(free.wait)  # something else is being written
    saving = asyncio.create_task(refusals.run())
    refusals.count(_BATCH, [Outcome.CONFLICT])
    await asyncio.sleep(0.05)
    saving.cancel()
    await asyncio.sleep(0.05)
    free.set()
    await asyncio.gather(saving, return_exceptions=True)
    await refusals.save_last()
    found = await spool.refusals(_BATCH)
    spool.close()

    assert Counter({Outcome.CONFLICT: 1}) == found


async def test_a_crash_forgets_only_what_was_not_written(tmp_path: Path) -> None:
    """Counts before the last writing are there again."""
    spool = await _spool(tmp_path)
    refusals = RefusalCounts(spool)
    refusals.count(_BATCH, [Outcome.CONFLICT])
    await refusals.save()
    refusals.count(_BATCH, [Outcome.MALFORMED])
    spool.close()
    again = Spool(tmp_path / "spool.sqlite")
    found = await RefusalCounts(again).of(_BATCH)
    again.close()

    assert Counter({Outcome.CONFLICT: 1}) == found
