import asyncio
from pathlib import Path

import pytest

from common.batch import BatchId, BatchState
from common.errors import BatchStateError, UnknownTaskError
from common.submission import Outcome
from shuffler.spool import Permuted, Row, Spool
from tests.support.tasks import published

_ID = BatchId(b"b" * 16)
_SIGNED = published().signed


def _row(number: int, content: bytes = b"c", *, in_time: bool = True) -> Row:
    return Row(
        batch_id=_ID,
        tag=number.to_bytes(16, "big"),
        content_tag=content * 16,
        sealed=b"sealed",
        in_time=in_time,
    )


async def test_what_was_acknowledged_survives(tmp_path: Path) -> None:
    """A second spool on the same file finds every row, and the batch with its count."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    assert [Outcome.STORED] * 3 == await spool.append([_row(n) for n in range(3)])
    # The first spool is not closed: its process might have been killed here.
    other = Spool(tmp_path / "spool.sqlite")
    found = await other.get(_SIGNED.digest())

    assert (3, BatchState.COLLECTING) == (found.n_users, found.state)
    assert len(await other.submissions(_ID)) == 3
    other.close()
    spool.close()


async def test_a_retry_is_recognised_and_a_conflict_told_apart(tmp_path: Path) -> None:
    """The same id with the same content is a repeat; with other content a conflict."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    await spool.append([_row(1)])
    outcomes = await spool.append([_row(1), _row(1, b"x"), _row(2)])
    found = await spool.get(_SIGNED.digest())

    assert [Outcome.REPEATED, Outcome.CONFLICT, Outcome.STORED] == outcomes
    assert found.n_users == 2
    spool.close()


async def test_nothing_is_added_to_a_batch_that_closed(tmp_path: Path) -> None:
    """Decided in the transaction that would store it; a repeat is still recognised."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    await spool.append([_row(1)])
    await spool.set_state(await spool.get(_SIGNED.digest()), BatchState.CLOSED)

    assert [Outcome.REPEATED, Outcome.CLOSED] == await spool.append([_row(1), _row(2)])
    spool.close()


async def test_calls_at_the_same_time_are_committed_together(tmp_path: Path) -> None:
    """A hundred submissions that wait for one commit need few more."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    commits = 0
    run = spool._database.run

    async def counted(*args: object) -> object:
        nonlocal commits
        commits += 1
        return await run(*args)  # type: ignore[arg-type]

    spool._database.run = counted  # type: ignore[method-assign, assignment]
    outcomes = await asyncio.gather(*(spool.append([_row(n)]) for n in range(100)))

    assert [[Outcome.STORED]] * 100 == outcomes
    assert commits <= 3
    spool.close()


async def test_rows_do_not_keep_the_order_of_arrival(tmp_path: Path) -> None:
    """They lie in the order of their tags, which are keyed hashes."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    for number in (3, 1, 2):
        row = Row(
            batch_id=_ID,
            tag=bytes([number]) * 16,
            content_tag=b"",
            sealed=bytes([number]),
            in_time=True,
        )
        await spool.append([row])

    assert [b"\1", b"\2", b"\3"] == await spool.submissions(_ID)
    spool.close()


async def test_submissions_and_permuted_batch_change_places_at_once(tmp_path: Path) -> None:
    """One transaction: never both, never neither."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    await spool.append([_row(1)])
    batch = await spool.get(_SIGNED.digest())
    permuted = Permuted(chunks=[b"one", b"two"], n_reports=5, seconds=0.5)
    await spool.replace_by_permuted(batch, BatchState.PERMUTED, permuted)
    found = await spool.get(_SIGNED.digest())

    assert (BatchState.PERMUTED, 5, 0.5) == (
        found.state,
        found.n_reports,
        found.shuffle_seconds,
    )
    assert await spool.submissions(_ID) == []
    assert [b"one", b"two", None] == [await spool.permuted_chunk(_ID, n) for n in range(3)]

    await spool.drop(found, BatchState.ERASED)
    assert await spool.permuted_chunk(_ID, 0) is None
    spool.close()


async def test_a_late_submission_is_only_compared(tmp_path: Path) -> None:
    """A retry of what is stored is recognised after the deadline; anything new is too late."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    await spool.append([_row(1)])
    late = [_row(1, in_time=False), _row(2, in_time=False)]

    assert [Outcome.REPEATED, Outcome.CLOSED] == await spool.append(late)
    spool.close()


async def test_a_state_is_changed_from_the_one_that_was_read(tmp_path: Path) -> None:
    """Two who read the same state cannot both move it on."""
    spool = Spool(tmp_path / "spool.sqlite")
    batch = await spool.open_batch(_ID, _SIGNED)
    await spool.set_state(batch, BatchState.CLOSED)
    with pytest.raises(BatchStateError, match="not collecting any more"):
        await spool.set_state(batch, BatchState.EXPIRED)
    spool.close()


async def test_a_task_without_a_batch_is_unknown(tmp_path: Path) -> None:
    """Nobody has asked for it."""
    spool = Spool(tmp_path / "spool.sqlite")
    with pytest.raises(UnknownTaskError):
        await spool.get(_SIGNED.digest())
    spool.close()
