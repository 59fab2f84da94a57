"""Crashes and disk failures from closing a batch to erasing it."""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from common.crypto.hpke import split_every
from common.messages.batch import BatchId, BatchState
from shuffler.storage.group import BatchKey
from shuffler.storage.spool import BatchFiles
from tests.support.disks import disk_of
from tests.support.shuffler_core import CASE, DIGEST, Shuffler

_SIZE = CASE.task.sealed_report_bytes


def _folders(shuffler: Shuffler) -> list[Path]:
    return list((shuffler.path / "batches").glob("*"))


def _rows(shuffler: Shuffler, query: str) -> list[str]:
    """Return the first column of a query to the spool's file."""
    with closing(sqlite3.connect(shuffler.path / "spool.sqlite")) as connection:
        return [row[0] for row in connection.execute(query)]


def _groups(shuffler: Shuffler) -> int:
    return len(_rows(shuffler, "SELECT number FROM submission_groups"))


def _tables_with_rows(shuffler: Shuffler) -> set[str]:
    names = _rows(shuffler, "SELECT name FROM sqlite_schema WHERE type = 'table'")
    return {name for name in names if _rows(shuffler, f"SELECT 1 FROM {name} LIMIT 1")}  # noqa: S608


def _reports(blob: bytes) -> list[bytes]:
    return sorted(split_every(blob, _SIZE))


class _Killed(Exception):  # noqa: N818  # not an error of the program
    """The process ends here."""


async def test_a_delivered_batch_leaves_only_its_inclusion_proof(shuffler: Shuffler) -> None:
    """No group, bucket, permuted batch or key."""
    before = {path.name for path in shuffler.path.rglob("*")}
    await shuffler.submit(5)
    await shuffler.advance()
    after = {path.name for path in shuffler.path.rglob("*")}

    assert BatchState.ERASED is await shuffler.state()
    shown = {f"{DIGEST.hex()}.{ending}" for ending in ("leaves", "commitment")}
    assert shown == after - before - {"batches", "spool.sqlite-wal", "spool.sqlite-shm"}
    assert (0, [], []) == (_groups(shuffler), _folders(shuffler), shuffler.key_files())


async def test_an_expired_batch_leaves_only_counts(shuffler: Shuffler) -> None:
    """Users and refusals; no hash of a report, submission or token, and no key."""
    await shuffler.submit(2)
    await shuffler.collection.submit_bulk(DIGEST, [b"short"])
    await shuffler.refusals.save(shuffler.spool)
    shuffler.clock.seconds = float(CASE.task.deadline)
    await shuffler.advance()

    assert {"batches", "refusals"} == _tables_with_rows(shuffler)
    assert [] == list((shuffler.path / "inclusion").iterdir())
    assert 2 == (await shuffler.collection.status(DIGEST)).n_users
    assert BatchState.EXPIRED is await shuffler.state()
    assert ([], [], []) == (shuffler.analyzer.delivered, _folders(shuffler), shuffler.key_files())


@pytest.mark.parametrize("moment", ["while it is written", "before it is recorded"])
async def test_an_unrecorded_permutation_is_removed_and_drawn_again(
    shuffler: Shuffler, moment: str
) -> None:
    """The next start removes it; every report is in the next one."""
    await shuffler.submit(5)
    files = shuffler.spool.files

    class Dying(BatchFiles):
        def save(self, chunks: Iterable[bytes]) -> None:
            super().save(chunks if moment == "before it is recorded" else dying_with(chunks))
            raise _Killed

    def dying_with(chunks: Iterable[bytes]) -> Iterator[bytes]:
        yield from chunks
        raise _Killed

    def dying(batch_id: BatchId, key: BatchKey) -> BatchFiles:
        return Dying(shuffler.path / "batches" / batch_id.hex(), key)

    shuffler.spool.files = dying  # type: ignore[method-assign]
    await shuffler.advance()
    assert BatchState.CLOSED is await shuffler.state()
    [folder] = _folders(shuffler)
    [left] = folder.iterdir()
    first = left.read_bytes()
    shuffler.spool.files = files  # type: ignore[method-assign]
    await shuffler.restart()
    assert [] == _folders(shuffler)
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    assert first != next(_folders(shuffler)[0].iterdir()).read_bytes()
    shuffler.analyzer.reachable = True
    await shuffler.advance()

    [(manifest, blob)] = shuffler.analyzer.delivered
    assert (5, 10 * _SIZE, 10) == (manifest.n_users, len(blob), len(set(_reports(blob))))


async def test_a_recorded_permutation_is_delivered_unchanged(shuffler: Shuffler) -> None:
    """Also after a crash before the submissions were dropped, and after a lost answer."""
    await shuffler.submit(5)

    async def killed(batch_id: BatchId) -> None:
        raise _Killed(batch_id)

    shuffler.spool._drop_submissions = killed  # type: ignore[method-assign]
    await shuffler.advance()
    assert BatchState.PERMUTED is await shuffler.state()
    assert _groups(shuffler) > 0
    [order] = [path.read_bytes() for path in _folders(shuffler)[0].iterdir()]
    await shuffler.restart()
    assert 0 == _groups(shuffler)
    assert [order] == [path.read_bytes() for path in _folders(shuffler)[0].iterdir()]
    for lose_answers in (True, False):
        shuffler.analyzer.lose_answers = lose_answers
        await shuffler.advance()

    first, second = shuffler.analyzer.delivered
    assert first == second
    assert BatchState.ERASED is await shuffler.state()


@pytest.mark.parametrize("damage", ["a flipped bit", "a lost end", "no file"])
async def test_a_damaged_permuted_batch_is_not_delivered(shuffler: Shuffler, damage: str) -> None:
    """It keeps its state and key for an operator; if the analyzer has it, it is erased."""
    await shuffler.submit(5)
    shuffler.analyzer.lose_answers = True
    await shuffler.advance()
    [order] = _folders(shuffler)[0].iterdir()
    content = order.read_bytes()
    if damage == "a flipped bit":
        order.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "a lost end":
        os.truncate(order, 0)
    else:
        order.unlink()
    shuffler.analyzer.lose_answers = False
    await shuffler.advance()
    assert BatchState.PERMUTED is await shuffler.state()
    assert (1, 1) == (len(shuffler.analyzer.delivered), len(shuffler.key_files()))

    shuffler.analyzer.listen = False  # it acknowledges without reading
    await shuffler.advance()
    assert BatchState.ERASED is await shuffler.state()
    assert [] == shuffler.key_files() == list((shuffler.path / "inclusion").iterdir())


async def test_a_full_disk_delays_the_shuffle(shuffler: Shuffler) -> None:
    """Nothing is lost; the batch is delivered once there is space."""
    await shuffler.submit(5)
    [found] = shuffler.batches.unfinished()
    await shuffler.spool.set_state(await shuffler.spool.get(DIGEST), BatchState.CLOSED)
    with disk_of(300):
        await shuffler.advance()
        assert BatchState.CLOSED is await shuffler.state()
    await shuffler.advance()

    [(manifest, blob)] = shuffler.analyzer.delivered
    assert (5, 10 * _SIZE) == (manifest.n_users, len(blob))
    assert found.batch_id == manifest.batch_id
