import shutil
import sqlite3

import pytest

from common.errors import StorageError
from common.messages.batch import BatchId, BatchState
from common.messages.submission import Outcome
from common.runtime.process_metrics import WINDOW
from tests.support.scrapes import Series, by_batches, series_of, value
from tests.support.shuffler_core import CASE, DIGEST, Shuffler


async def _told(shuffler: Shuffler) -> Series:
    return series_of(shuffler.process_metrics.metrics)


async def _number(shuffler: Shuffler, name: str, **labels: str) -> float:
    return value(await _told(shuffler), f"shuffledp_{name}", **labels)


async def test_a_batch_that_expires_is_counted_and_its_users_are_not(shuffler: Shuffler) -> None:
    """They were released to nobody."""
    await shuffler.submit(2)
    shuffler.clock.seconds = float(CASE.task.deadline)
    await shuffler.deliveries.advance()

    assert 1 == await _number(shuffler, "batches", state="expired")
    assert 1 == await _number(shuffler, "batches_moved_total", state="expired")
    assert 0 == await _number(shuffler, "users_released_total")


async def test_a_batch_that_the_analyzer_refuses_is_quarantined(shuffler: Shuffler) -> None:
    """It waits for no delivery any more."""
    await shuffler.submit(5)
    shuffler.analyzer.refuse_with = "INVALID_ARGUMENT"
    await shuffler.deliveries.advance()
    shuffler.clock.seconds += 100

    assert 1 == await _number(shuffler, "batches", state="quarantined")
    assert 0 == await _number(shuffler, "oldest_undelivered_seconds")
    assert 0 == await _number(shuffler, "users_released_total")


async def test_a_batch_that_cannot_be_delivered_is_stuck_until_it_is(shuffler: Shuffler) -> None:
    """Its age counts from its closing."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    await shuffler.deliveries.advance()
    shuffler.clock.seconds += 1000
    assert 1 == await _number(shuffler, "batches_stuck")
    assert 1000 == await _number(shuffler, "oldest_undelivered_seconds")

    shuffler.analyzer.reachable = True
    await shuffler.deliveries.advance()
    assert 0 == await _number(shuffler, "batches_stuck")
    assert 0 == await _number(shuffler, "oldest_undelivered_seconds")
    assert 5 == await _number(shuffler, "users_released_total")


@pytest.mark.parametrize(("moved_on", "age"), [(10.0, 60.0), (4_000_000_000.0, 1_000_000_060.0)])
async def test_after_a_restart_a_batch_waits_since_the_start_or_its_deadline(
    shuffler: Shuffler, moved_on: float, age: float
) -> None:
    """The moment of its closing is on no disk."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    await shuffler.deliveries.advance()
    shuffler.spool.close()
    shuffler.clock.seconds += moved_on
    await shuffler.start()
    shuffler.clock.seconds += 60

    assert age == await _number(shuffler, "oldest_undelivered_seconds")
    assert 1 == await _number(shuffler, "batches", state="permuted")


async def test_a_disk_that_fails_batches_is_told(shuffler: Shuffler) -> None:
    """As it is for calls."""
    await shuffler.submit(5)
    shutil.rmtree(shuffler.path / "batches", ignore_errors=True)
    (shuffler.path / "batches").write_bytes(b"no folder")
    await shuffler.deliveries.advance()
    shuffler.clock.seconds += WINDOW

    assert BatchState.CLOSED is await shuffler.state()
    assert 1 == await _number(shuffler, "storage_failing")
    assert 1 == await _number(shuffler, "batches_stuck")


async def test_refusals_are_told_by_cause_when_a_batch_is_over(shuffler: Shuffler) -> None:
    """Not while it collects; once, though its delivery is tried twice."""
    await shuffler.submit(4)
    batch_id = (await shuffler.spool.get(DIGEST)).batch_id
    shuffler.refusals.count(batch_id, [Outcome.CONFLICT, Outcome.MALFORMED, Outcome.MALFORMED])
    shuffler.refusals.count(batch_id, [Outcome.REPEATED])
    refused = "submissions_refused_total"
    assert 0 == await _number(shuffler, refused, cause="malformed")
    await shuffler.submit(1)
    shuffler.analyzer.reachable = False
    await shuffler.deliveries.advance()
    shuffler.analyzer.reachable = True
    await shuffler.deliveries.advance()

    assert 1 == await _number(shuffler, refused, cause="conflict")
    assert 2 == await _number(shuffler, refused, cause="malformed")


async def test_a_count_of_a_later_version_holds_up_no_batch(shuffler: Shuffler) -> None:
    """An earlier one that is put back does not know the outcome."""
    await shuffler.submit(CASE.task.target_size)
    batch_id = (await shuffler.spool.get(DIGEST)).batch_id
    await shuffler.spool._database.run(_refused_as, batch_id, "of a later version")
    await shuffler.deliveries.advance()

    assert BatchState.ERASED is await shuffler.state()


def _refused_as(connection: sqlite3.Connection, batch_id: bytes, outcome: str) -> None:
    connection.execute("INSERT INTO refusals VALUES (?, ?, 1)", (batch_id, outcome))


@pytest.mark.parametrize("users", [2, 5])
async def test_users_are_counted_with_what_their_batch_refused(
    shuffler: Shuffler, users: int
) -> None:
    """Of one that expires or cannot be delivered too: neither shows without the other."""
    await shuffler.submit(users)
    batch_id = (await shuffler.spool.get(DIGEST)).batch_id
    shuffler.refusals.count(batch_id, [Outcome.MALFORMED])
    shuffler.analyzer.reachable = False
    assert 0 == await _number(shuffler, "users_collected_total")
    shuffler.clock.seconds = float(CASE.task.deadline)
    await shuffler.deliveries.advance()
    await shuffler.deliveries.advance()

    assert users == await _number(shuffler, "users_collected_total")
    assert 1 == await _number(shuffler, "submissions_refused_total", cause="malformed")
    assert 0 == await _number(shuffler, "users_released_total")


async def test_a_batch_that_begins_moves_nothing(shuffler: Shuffler) -> None:
    """Neither the first call for it, nor a restart while it collects."""
    before = await _told(shuffler)
    await shuffler.submit(1)
    begun = await _told(shuffler)
    shuffler.spool.close()
    await shuffler.start()

    assert by_batches(before) == by_batches(begun) == by_batches(await _told(shuffler))


async def test_what_comes_too_late_is_counted_nowhere(shuffler: Shuffler) -> None:
    """Though it comes before its batch is permuted."""
    await shuffler.submit(5)
    stored = await shuffler.spool.get(DIGEST)
    await shuffler.spool.set_state(stored, BatchState.CLOSED)
    late = [shuffler.envelope() for _ in range(7)]
    assert [Outcome.CLOSED] * 7 == await shuffler.collection.submit_bulk(DIGEST, late)
    await shuffler.deliveries.advance()

    refused = {
        labels: number
        for (name, labels), number in (await _told(shuffler)).items()
        if name == "shuffledp_submissions_refused_total"
    }
    assert 4 == len(refused)
    assert {0.0} == set(refused.values())


@pytest.mark.parametrize("users", [2, 5])
async def test_refusals_are_told_though_the_disk_failed_between(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch, users: int
) -> None:
    """Before anything was recorded, and after, of a batch that expires or is permuted: once."""
    await shuffler.submit(users)
    batch_id = (await shuffler.spool.get(DIGEST)).batch_id
    shuffler.refusals.count(batch_id, [Outcome.MALFORMED])
    shuffler.clock.seconds = float(CASE.task.deadline)

    async def fail(_: BatchId) -> None:
        raise StorageError("the disk failed")

    for name in ("refusals", "_drop_submissions"):
        with monkeypatch.context() as patch:
            patch.setattr(shuffler.spool, name, fail)
            await shuffler.deliveries.advance()
    await shuffler.deliveries.advance()

    assert 1 == await _number(shuffler, "submissions_refused_total", cause="malformed")


async def test_an_error_while_nothing_is_stored_moves_no_state(shuffler: Shuffler) -> None:
    """What is told is what is on the disk."""
    await shuffler.submit(1)
    stored = await shuffler.spool.get(DIGEST)
    shuffler.spool._database._thread.submit(
        shuffler.spool._database._connection.execute, "PRAGMA query_only=ON"
    ).result()
    with pytest.raises(StorageError):
        await shuffler.spool.set_state(stored, BatchState.CLOSED)

    assert 0 == await _number(shuffler, "batches", state="closed")
    assert 0 == await _number(shuffler, "batches_moved_total", state="closed")
