"""A shuffler that is stopped at the worst moment, or whose disk fails, from closing to erasing."""

import asyncio
import errno
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

import pytest

from common.errors import StorageError
from common.messages.batch import BatchId, BatchState
from shuffler.storage.batch_files import BatchFiles
from shuffler.storage.group import BatchKey
from tests.support.disks import disk_of
from tests.support.shuffler_core import CASE, DIGEST, Shuffler

_SIZE = CASE.task.sealed_report_bytes


def _folders(shuffler: Shuffler) -> list[Path]:
    return list((shuffler.path / "batches").glob("*"))


def _groups(shuffler: Shuffler) -> int:
    """Count the groups that the spool's file still has."""
    connection = sqlite3.connect(shuffler.path / "spool.sqlite")
    [count] = connection.execute("SELECT count(*) FROM submission_groups").fetchone()
    connection.close()
    return int(count)


def _tables_with_rows(shuffler: Shuffler) -> set[str]:
    """Name the tables of the spool's file that hold anything."""
    connection = sqlite3.connect(shuffler.path / "spool.sqlite")
    names = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    ]
    held = {n for n in names if connection.execute(f"SELECT 1 FROM {n} LIMIT 1").fetchone()}  # noqa: S608
    connection.close()
    return held


def _reports(blob: bytes) -> list[bytes]:
    return sorted(blob[start : start + _SIZE] for start in range(0, len(blob), _SIZE))


async def _restart(shuffler: Shuffler) -> None:
    shuffler.spool.close()
    await shuffler.start()


class _Killed(Exception):  # noqa: N818  # not an error of the program
    """Where the process would have ended."""


async def test_nothing_of_a_batch_is_left_when_it_is_over(shuffler: Shuffler) -> None:
    """No group, no bucket, no order, no key: nothing new but what devices are shown."""
    before = {path.name for path in shuffler.path.rglob("*")}
    await shuffler.submit(5)
    await shuffler.deliveries.advance()
    after = {path.name for path in shuffler.path.rglob("*")}

    assert BatchState.ERASED is await shuffler.state()
    shown = {f"{DIGEST.hex()}.{ending}" for ending in ("leaves", "commitment")}
    assert shown == after - before - {"batches", "spool.sqlite-wal", "spool.sqlite-shm"}
    assert (0, [], []) == (_groups(shuffler), _folders(shuffler), shuffler.key_files())


async def test_an_expired_batch_leaves_nothing_either(shuffler: Shuffler) -> None:
    """Its submissions are dropped with its key."""
    await shuffler.submit(2)
    shuffler.clock.seconds = float(CASE.task.deadline)
    await shuffler.deliveries.advance()

    assert BatchState.EXPIRED is await shuffler.state()
    assert (0, [], []) == (_groups(shuffler), _folders(shuffler), shuffler.key_files())


async def test_what_stays_of_an_expired_batch_is_its_counts(shuffler: Shuffler) -> None:
    """Users, and refusals by cause: no hash of a report, a submission or a token."""
    await shuffler.submit(2)
    await shuffler.collection.submit_bulk(DIGEST, [b"short"])
    await shuffler.refusals.save()
    shuffler.clock.seconds = float(CASE.task.deadline)
    await shuffler.deliveries.advance()

    assert {"batches", "refusals"} == _tables_with_rows(shuffler)
    assert [] == list((shuffler.path / "inclusion").iterdir())
    assert 2 == (await shuffler.collection.status(DIGEST)).n_users


@pytest.mark.parametrize("moment", ["while it is written", "before it is recorded"])
async def test_an_order_that_was_not_recorded_leaves_no_trace(
    shuffler: Shuffler, moment: str
) -> None:
    """
    It is removed at the next start, and another is drawn; every report of the batch is in it.

    Nobody has seen the first one, so that there is nothing to compare the second with.
    """
    await shuffler.submit(5)
    files = shuffler.spool.files

    class Dying(BatchFiles):
        def save(self, chunks: Iterable[bytes]) -> None:
            if moment == "before it is recorded":
                super().save(chunks)
            else:
                self.append(3, b"a bucket")
            raise _Killed

    def dying(batch_id: BatchId, key: BatchKey) -> BatchFiles:
        return Dying(shuffler.path / "batches" / batch_id.hex(), key)

    shuffler.spool.files = dying  # type: ignore[method-assign]
    await shuffler.deliveries.advance()
    assert BatchState.CLOSED is await shuffler.state()
    [folder] = _folders(shuffler)
    [left] = folder.iterdir()
    first = left.read_bytes()
    shuffler.spool.files = files  # type: ignore[method-assign]
    await _restart(shuffler)
    assert [] == _folders(shuffler)
    shuffler.analyzer.reachable = False
    await shuffler.deliveries.advance()
    assert first != next(_folders(shuffler)[0].iterdir()).read_bytes()
    shuffler.analyzer.reachable = True
    await shuffler.deliveries.advance()

    [(manifest, blob)] = shuffler.analyzer.delivered
    assert (5, 10 * _SIZE, 10) == (manifest.n_users, len(blob), len(set(_reports(blob))))


async def test_a_recorded_order_is_the_one_that_is_delivered(shuffler: Shuffler) -> None:
    """Also when the process ended before the submissions were dropped: they are at its start."""
    await shuffler.submit(5)

    async def killed(batch_id: BatchId) -> None:
        raise _Killed(batch_id)

    shuffler.spool._drop_submissions = killed  # type: ignore[method-assign]
    await shuffler.deliveries.advance()
    assert BatchState.PERMUTED is await shuffler.state()
    assert _groups(shuffler) > 0
    [order] = [path.read_bytes() for path in _folders(shuffler)[0].iterdir()]
    await _restart(shuffler)
    assert 0 == _groups(shuffler)
    assert [order] == [path.read_bytes() for path in _folders(shuffler)[0].iterdir()]
    for lose_answers in (True, False):
        shuffler.analyzer.lose_answers = lose_answers
        await shuffler.deliveries.advance()

    first, second = shuffler.analyzer.delivered
    assert first == second
    assert BatchState.ERASED is await shuffler.state()


@pytest.mark.parametrize("damage", ["a flipped bit", "a lost end", "no file"])
async def test_a_damaged_order_is_not_delivered_for_a_whole_one(
    shuffler: Shuffler, damage: str
) -> None:
    """The batch stays where it is, with its key, for an operator; the analyzer takes nothing."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    await shuffler.deliveries.advance()
    [order] = _folders(shuffler)[0].iterdir()
    content = order.read_bytes()
    if damage == "a flipped bit":
        order.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "a lost end":
        os.truncate(order, 0)
    else:
        order.unlink()
    shuffler.analyzer.reachable = True
    await shuffler.deliveries.advance()

    assert BatchState.PERMUTED is await shuffler.state()
    assert [] == shuffler.analyzer.delivered
    assert 1 == len(shuffler.key_files())


async def test_lost_submissions_hold_a_batch_back(shuffler: Shuffler) -> None:
    """A group that is gone from the file is users who would be missing: nothing is released."""
    await shuffler.submit(2)
    await shuffler.submit(3)
    one = "SELECT min(number) FROM submission_groups"
    delete = f"DELETE FROM submission_groups WHERE number = ({one})"  # noqa: S608  # no input
    await shuffler.spool._database.run(lambda connection: connection.execute(delete))
    await shuffler.deliveries.advance()

    assert BatchState.CLOSED is await shuffler.state()
    assert [] == shuffler.analyzer.delivered


async def test_a_disk_that_is_full_while_a_batch_is_permuted_holds_it_back(
    shuffler: Shuffler,
) -> None:
    """Nothing is lost; it moves on when there is space."""
    await shuffler.submit(5)
    [found] = shuffler.rounds.unfinished()
    await shuffler.spool.set_state(await shuffler.spool.get(DIGEST), BatchState.CLOSED)
    with disk_of(300):
        await shuffler.deliveries.advance()
        assert BatchState.CLOSED is await shuffler.state()
    await shuffler.deliveries.advance()

    [(manifest, blob)] = shuffler.analyzer.delivered
    assert (5, 10 * _SIZE) == (manifest.n_users, len(blob))
    assert found.batch_id == manifest.batch_id


async def test_a_batch_key_that_cannot_be_kept_begins_no_round(tmp_path: Path) -> None:
    """A full disk at the very beginning; later the round begins as if nothing had been."""
    shuffler = Shuffler(tmp_path)
    await shuffler.start()
    full = OSError(errno.ENOSPC, "no room")
    with (
        patch.object(BatchKey, "generate", side_effect=full),
        pytest.raises(StorageError, match="full"),
    ):
        await shuffler.collection.fetch_task(DIGEST)
    assert [] == shuffler.key_files() == list(tmp_path.glob(".batch-*"))

    await shuffler.submit(1)
    assert 1 == len(shuffler.key_files())
    shuffler.spool.close()


async def test_a_service_that_stops_leaves_a_closed_batch_for_the_next_start(
    shuffler: Shuffler,
) -> None:
    """However far its order was."""
    await shuffler.submit(5)
    running = asyncio.create_task(shuffler.deliveries.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await _restart(shuffler)
    await shuffler.deliveries.advance()

    assert 5 == sum(manifest.n_users for manifest, _ in shuffler.analyzer.delivered)
    assert BatchState.ERASED is await shuffler.state()
