import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from common.errors import BatchStateError, DamagedStorageError, StorageError
from common.messages.batch import BatchId, BatchState
from common.messages.submission import Outcome
from shuffler.storage.group import BatchKey, Group, form_group, open_group, open_tags
from shuffler.storage.spool import Spool
from shuffler.storage.submissions import Arrival
from tests.support.tasks import published

_ID = BatchId(b"b" * 16)
_SIGNED = published().signed
_KEY = BatchKey(bytes(32))


def _submission(number: int, content: bytes = b"c") -> bytes:
    return number.to_bytes(16, "big") + content * 60


def _group(*submissions: bytes) -> Group:
    group, _ = form_group(submissions, _KEY)
    return group


async def _append(spool: Spool, *submissions: bytes, in_time: bool = True) -> list[Outcome]:
    """Store submissions in one call; give outcomes in their order."""
    group, places = form_group(submissions, _KEY)
    arrival = Arrival(batch_id=_ID, key=_KEY, groups=[group], in_time=in_time)
    [outcomes] = await spool.append(arrival)
    return [outcomes[places.index(place)] for place in range(len(submissions))]


async def _stored(spool: Spool) -> list[bytes]:
    """Sealed reports of every submission, group by group."""
    found = await spool.groups(_ID, -1, 1000)
    return [open_group(number, sealed, _KEY) for number, sealed in found]


async def test_what_was_acknowledged_survives(tmp_path: Path) -> None:
    """A second spool on the same file finds every submission, and the batch with its count."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    assert [Outcome.STORED] * 3 == await _append(spool, *map(_submission, range(3)))
    # The first spool is not closed: its process might have been killed here.
    other = Spool(tmp_path / "spool.sqlite")
    found = await other.get(_SIGNED.digest())

    assert (3, BatchState.COLLECTING) == (found.n_users, found.state)
    assert [b"c" * 180] == await _stored(other)
    other.close()
    spool.close()


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_retry_is_recognised_and_a_conflict_told_apart(
    tmp_path: Path,
    restarted: bool,  # noqa: FBT001
) -> None:
    """
    The same id with the same content is a repeat; with other content a conflict. Also within one
    call, and after a restart, when it is known from the disk alone.
    """
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    await _append(spool, _submission(0), _submission(1), _submission(5))
    if restarted:
        spool.close()
        spool = Spool(tmp_path / "spool.sqlite")
    sent = [_submission(1), _submission(0, b"x"), _submission(2), _submission(2), _submission(3)]
    outcomes = await _append(spool, *sent)
    found = await spool.get(_SIGNED.digest())

    new, repeated, conflict = Outcome.STORED, Outcome.REPEATED, Outcome.CONFLICT
    assert [repeated, conflict, new, repeated, new] == outcomes
    assert [repeated] * 5 == await _append(spool, *map(_submission, (0, 1, 2, 3, 5)))
    assert found.n_users == 5
    assert sorted([b"c" * 180, b"c" * 120]) == sorted(await _stored(spool))
    spool.close()


async def test_calls_that_are_committed_together_see_each_other(tmp_path: Path) -> None:
    """Of two with the same id in one commit the first is stored, the second is a repeat."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    outcomes = await asyncio.gather(*(_append(spool, _submission(n % 10)) for n in range(30)))

    assert [[Outcome.STORED]] * 10 + [[Outcome.REPEATED]] * 20 == outcomes
    assert 10 == (await spool.get(_SIGNED.digest())).n_users
    spool.close()


async def test_nothing_is_added_to_a_batch_that_closed(tmp_path: Path) -> None:
    """Decided in the transaction that would store it; a repeat is still recognised."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    await _append(spool, _submission(1))
    await spool.set_state(await spool.get(_SIGNED.digest()), BatchState.CLOSED)

    assert [Outcome.REPEATED, Outcome.CLOSED] == await _append(
        spool, _submission(1), _submission(2)
    )
    assert 1 == (await spool.get(_SIGNED.digest())).n_users
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
    outcomes = await asyncio.gather(*(_append(spool, _submission(n)) for n in range(100)))

    assert [[Outcome.STORED]] * 100 == outcomes
    assert commits <= 3
    spool.close()


async def test_nothing_is_acknowledged_before_it_is_committed(tmp_path: Path) -> None:
    """Where the commit fails, the call fails, and what was sent is new when it comes again."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    await _append(spool, _submission(0))

    def forbid(connection: sqlite3.Connection) -> None:
        refusal = "BEGIN SELECT RAISE(ABORT, 'no'); END"
        connection.execute(f"CREATE TRIGGER no BEFORE UPDATE ON batches {refusal}")

    await spool._database.run(forbid)
    with pytest.raises(Exception, match="no"):
        await _append(spool, _submission(1))
    await spool._database.run(lambda connection: connection.execute("DROP TRIGGER no"))

    assert 1 == (await spool.get(_SIGNED.digest())).n_users
    assert [Outcome.STORED] == await _append(spool, _submission(1))
    spool.close()


async def test_submissions_do_not_keep_the_order_of_arrival(tmp_path: Path) -> None:
    """
    In a group they lie in the order of keyed hashes, groups in that of random numbers.

    Forty submissions, alone and together: in order by chance with probability 1/40!.
    """
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    for number in range(40):
        await _append(spool, _submission(number, bytes([number])))
    alone = [reports[0] for reports in await _stored(spool)]
    group, places = form_group([_submission(n, bytes([n])) for n in range(40)], _KEY)
    together = list(open_group(group.number, group.sealed, _KEY)[::60])

    assert list(range(40)) == sorted(alone) == sorted(together)
    assert list(range(40)) != alone
    assert list(range(40)) != together
    assert places == together
    spool.close()


async def test_what_is_stored_together_lies_in_the_order_of_its_hashes(tmp_path: Path) -> None:
    """One call, a call of which a part is new, and calls that are laid together; no row number."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    await _append(spool, *map(_submission, range(20)))
    await _append(spool, *map(_submission, range(10, 40)))
    await asyncio.gather(*(_append(spool, _submission(number)) for number in range(40, 60)))
    spool.close()
    with closing(sqlite3.connect(tmp_path / "spool.sqlite")) as connection:
        rows = connection.execute("SELECT number, sealed_tags FROM submission_groups").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="no such column: rowid"):
            connection.execute("SELECT rowid FROM submission_groups")
    tags = [np.frombuffer(open_tags(number, sealed, _KEY), dtype="S32") for number, sealed in rows]

    assert 60 == sum(map(len, tags))
    assert len(tags) < 30
    for one in tags:
        assert (one[1:] > one[:-1]).all()


async def test_a_permuted_batch_holds_no_submissions(tmp_path: Path) -> None:
    """Its state and numbers are recorded first; a crash before the rest is made good at start."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    await _append(spool, _submission(1))
    batch = await spool.get(_SIGNED.digest())
    drop = spool._drop_submissions

    async def crash(batch_id: BatchId) -> None:
        raise RuntimeError(batch_id)

    spool._drop_submissions = crash  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        await spool.record_permuted(batch, BatchState.PERMUTED, 5, 0.5)
    spool._drop_submissions = drop  # type: ignore[method-assign]
    found = await spool.get(_SIGNED.digest())

    assert (BatchState.PERMUTED, 5, 0.5) == (found.state, found.n_reports, found.shuffle_seconds)
    assert [Outcome.CLOSED] == await _append(spool, _submission(1))
    assert 1 == len(await _stored(spool))
    await spool.sweep()
    assert [] == await _stored(spool)
    spool.close()


async def test_a_late_submission_is_only_compared(tmp_path: Path) -> None:
    """A retry of what is stored is recognised after the deadline; anything new is too late."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)
    await _append(spool, _submission(1))
    late = await _append(spool, _submission(1), _submission(2), in_time=False)

    assert [Outcome.REPEATED, Outcome.CLOSED] == late
    spool.close()


async def test_a_state_is_changed_from_the_one_that_was_read(tmp_path: Path) -> None:
    """Two who read the same state cannot both move it on."""
    spool = Spool(tmp_path / "spool.sqlite")
    batch = await spool.open_batch(_ID, _SIGNED)
    await spool.set_state(batch, BatchState.CLOSED)
    with pytest.raises(BatchStateError, match="no longer collecting"):
        await spool.set_state(batch, BatchState.EXPIRED)
    spool.close()


async def test_batches_in_one_commit_do_not_meet(tmp_path: Path) -> None:
    """The same id and bytes in two batches are two submissions."""
    spool = Spool(tmp_path / "spool.sqlite")
    signed = [published().signed for _ in range(2)]
    ids = [BatchId(bytes([n]) * 16) for n in range(2)]
    for one, batch_id in zip(signed, ids, strict=True):
        await spool.open_batch(batch_id, one)
    arrivals = [
        Arrival(batch_id=batch_id, key=_KEY, groups=[_group(_submission(n))], in_time=True)
        for n in (1, 2)
        for batch_id in ids
    ]
    outcomes = await asyncio.gather(*(spool.append(arrival) for arrival in arrivals))

    assert [[[Outcome.STORED]]] * 4 == outcomes
    assert [2, 2] == [(await spool.get(one.digest())).n_users for one in signed]
    spool.close()


# --- the disk ------------------------------------------------------------------------------------


async def test_a_full_disk_refuses_and_service_goes_on_when_space_is_back(tmp_path: Path) -> None:
    """Nothing that was acknowledged is lost, nothing that was refused is there."""
    spool = Spool(tmp_path / "spool.sqlite")
    await spool.open_batch(_ID, _SIGNED)

    async def limit(pages: int) -> None:
        await spool._database.run(lambda c: c.execute(f"PRAGMA max_page_count={pages}").fetchone())

    stored = 0

    async def fill() -> None:
        nonlocal stored
        for number in range(1000):
            await _append(spool, _submission(number, b"c" * 100))
            stored += 1

    await limit(60)
    with pytest.raises(StorageError, match="disk of the state directory is full") as caught:
        await fill()
    assert "UNAVAILABLE" == caught.value.status
    assert 0 < stored < 1000
    assert stored == (await spool.get(_SIGNED.digest())).n_users
    assert [Outcome.REPEATED] == await _append(spool, _submission(0, b"c" * 100))

    await limit(1_000_000)
    assert [Outcome.STORED] == await _append(spool, _submission(stored, b"c" * 100))
    assert stored + 1 == (await spool.get(_SIGNED.digest())).n_users == len(await _stored(spool))
    spool.close()


async def test_a_damaged_page_is_refused_and_never_taken_for_less(tmp_path: Path) -> None:
    """
    Bytes flipped anywhere among the groups: reading them all fails, or gives all of them as they
    were; no submission goes missing in silence, and none is read as another.
    """
    path = tmp_path / "spool.sqlite"
    spool = Spool(path)
    await spool.open_batch(_ID, _SIGNED)
    for number in range(60):
        await _append(spool, *(_submission(1000 * number + n, bytes([number])) for n in range(9)))
    whole = await _stored(spool)
    spool.close()
    intact = path.read_bytes()
    rng, refusals = np.random.default_rng(1), 0
    for _ in range(60):
        damaged = bytearray(intact)
        start = int(rng.integers(2 * 4096, len(intact) - 2048))
        damaged[start : start + 2048] = rng.bytes(2048)
        path.write_bytes(damaged)
        spool = Spool(path)
        try:
            stored = await _stored(spool)
            batch = await spool.get(_SIGNED.digest())
        except DamagedStorageError:
            refusals += 1
        else:
            # A lost link leaves groups out; the number of users tells.
            assert whole == stored or sum(map(len, stored)) < 60 * batch.n_users
        spool.close()

    assert refusals > 30
