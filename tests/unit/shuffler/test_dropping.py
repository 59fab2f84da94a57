import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shuffledp.common.errors import BatchStateError, StorageError
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.storage.submission_store import StoredBatch
from tests.support.shuffler_core import CASE, DIGEST, Shuffler


def _folders(shuffler: Shuffler) -> list[Path]:
    return [path for path in shuffler.path.glob("blocks/*") if not path.name.startswith("proof")]


def _seeds(shuffler: Shuffler) -> list[Path]:
    return list(shuffler.path.glob("seed-*.key"))


async def _nothing_left(shuffler: Shuffler) -> bool:
    """Return whether key, blocks and submissions of the batch are gone."""
    batch_id = (await shuffler.store.get(DIGEST)).batch_id
    groups = [*shuffler.store.group_source().read(batch_id, 0, 2**63)]
    return not [*shuffler.key_files(), *_seeds(shuffler), *_folders(shuffler), *groups]


def _stay_closed(shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk have no space for the numbers of a permuted batch."""
    set_state = shuffler.store.set_state

    async def refused(batch: StoredBatch, state: BatchState) -> None:
        if state is BatchState.PERMUTED:
            raise StorageError("no space")
        await set_state(batch, state)

    monkeypatch.setattr(shuffler.store, "set_state", refused)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("by_command", [False, True])
@pytest.mark.parametrize(
    ("kept", "ended"),
    [
        (BatchState.CLOSED, BatchState.DROPPED),
        (BatchState.PERMUTED, BatchState.DROPPED),
        (BatchState.QUARANTINED, BatchState.DROPPED),
        (BatchState.SENT, BatchState.UNCONFIRMED),
    ],
)
async def test_a_batch_that_cannot_be_delivered_is_dropped(
    shuffler: Shuffler,
    monkeypatch: pytest.MonkeyPatch,
    *,
    kept: BatchState,
    ended: BatchState,
    by_command: bool,
    restarted: bool,
) -> None:
    """
    By command, twice, or at its end date: nothing is left of it, now and after a restart.

    The last state says whether the analyzer may have the batch.
    """
    await shuffler.submit(5)
    if kept is BatchState.CLOSED:
        _stay_closed(shuffler, monkeypatch)
    shuffler.analyzer.refuse_with = "INVALID_ARGUMENT" if kept is BatchState.QUARANTINED else None
    shuffler.analyzer.reachable = kept is not BatchState.PERMUTED
    shuffler.analyzer.lose_answers = True
    await shuffler.advance()
    assert kept is await shuffler.batch_state()
    if restarted:
        shuffler.analyzer.reachable = False
        await shuffler.restart()
    shuffler.clock.seconds = CASE.task.deadline + shuffler.batches.keep_seconds - 1
    if not (restarted and kept is BatchState.CLOSED):  # else it is permuted now
        await shuffler.advance()
        assert kept is await shuffler.batch_state()
    assert 1 == len(shuffler.key_files())

    if by_command:
        for _ in range(2):
            assert ended is await shuffler.collection.drop(DIGEST)
    else:
        shuffler.clock.seconds += 1
    await shuffler.advance()
    assert ended is await shuffler.batch_state()
    assert await _nothing_left(shuffler)
    await shuffler.restart()
    assert ended is await shuffler.batch_state()
    assert [] == shuffler.batches.unfinished()


@pytest.mark.parametrize(
    ("step", "ended"),
    [("deliver_part", BatchState.DROPPED), ("finish_delivery", BatchState.UNCONFIRMED)],
)
async def test_a_batch_that_is_dropped_during_its_delivery_says_what_the_analyzer_may_have(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch, step: str, ended: BatchState
) -> None:
    """While parts are sent, the analyzer never gets the whole batch; later, it may release it."""
    call = getattr(shuffler.analyzer, step)

    async def dropped_meanwhile(*given: object) -> object:
        assert ended is await shuffler.collection.drop(DIGEST)
        return await call(*given)

    await shuffler.submit(5)
    monkeypatch.setattr(shuffler.analyzer, step, dropped_meanwhile)
    for _ in range(2):
        await shuffler.advance()

    assert ended is await shuffler.batch_state()
    assert (ended is BatchState.UNCONFIRMED) == shuffler.analyzer.staged
    assert await _nothing_left(shuffler)


async def test_a_batch_permuted_by_an_earlier_version_may_have_been_sent(
    shuffler: Shuffler,
) -> None:
    """That version stored nothing before it finished a delivery."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    assert BatchState.PERMUTED is await shuffler.batch_state()
    with closing(sqlite3.connect(shuffler.path / "spool.sqlite")) as connection, connection:
        connection.execute("ALTER TABLE batches DROP COLUMN part_hashes")
        connection.execute("UPDATE schema_version SET version = 2")
    await shuffler.restart()

    assert BatchState.SENT is await shuffler.batch_state()
    shuffler.analyzer.reachable = True
    await shuffler.advance()
    assert BatchState.ERASED is await shuffler.batch_state()


@pytest.mark.parametrize("by_command", [False, True])
@pytest.mark.parametrize("kept", [BatchState.CLOSED, BatchState.PERMUTED, "unreadable"])
async def test_a_batch_that_cannot_be_resumed_is_dropped(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch, kept: BatchState | str, *, by_command: bool
) -> None:
    """Its key is lost, or its task cannot be read, which has no end date then."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    if kept is BatchState.CLOSED:
        _stay_closed(shuffler, monkeypatch)
    await shuffler.advance()
    if kept == "unreadable":
        other = b"of a later version"
        await shuffler.store._database.fetch(
            "UPDATE batches SET task = ?, task_digest = ?", other, hashlib.sha256(other).digest()
        )
        digest = TaskDigest(hashlib.sha256(other).digest())
    else:
        shuffler.key_files()[0].unlink()
        digest = DIGEST
    await shuffler.restart()
    assert [] == shuffler.batches.unfinished()
    await shuffler.deliveries.end_unresumed()
    before = (await shuffler.store.get(digest)).state
    assert BatchState.DROPPED is not before
    if by_command:
        await shuffler.collection.drop(digest)
    else:
        shuffler.clock.seconds = CASE.task.deadline + shuffler.batches.keep_seconds
    for _ in range(2):
        await shuffler.deliveries.end_unresumed()

    batch_id = (await shuffler.store.get(digest)).batch_id
    groups = [*shuffler.store.group_source().read(batch_id, 0, 2**63)]
    left = [*shuffler.key_files(), *_seeds(shuffler), *_folders(shuffler), *groups]
    erased = by_command or kept != "unreadable"
    assert erased == (left == [])
    assert erased == ({} == shuffler.batches.unresumed)


@pytest.mark.parametrize(("users", "ended"), [(2, BatchState.EXPIRED), (3, BatchState.CLOSED)])
async def test_a_collecting_batch_whose_key_is_lost_ends(
    shuffler: Shuffler, users: int, ended: BatchState
) -> None:
    """At its deadline it expires, or it closes, so that it can be dropped."""
    await shuffler.submit(users)
    shuffler.key_files()[0].unlink()
    await shuffler.restart()
    await shuffler.deliveries.end_unresumed()
    assert BatchState.COLLECTING is (await shuffler.store.get(DIGEST)).state
    shuffler.clock.seconds = float(CASE.task.deadline)
    await shuffler.deliveries.end_unresumed()
    assert ended is (await shuffler.store.get(DIGEST)).state


async def test_a_batch_that_collects_or_was_delivered_is_not_dropped(shuffler: Shuffler) -> None:
    """The refusal names the state, and nothing changes."""
    await shuffler.submit(3)
    with pytest.raises(BatchStateError, match="a batch that is collecting cannot drop"):
        await shuffler.collection.drop(DIGEST)
    await shuffler.submit(2)
    await shuffler.advance()
    await shuffler.advance()
    with pytest.raises(BatchStateError, match="a batch that is erased cannot drop"):
        await shuffler.collection.drop(DIGEST)
