import asyncio
import math
from pathlib import Path

import pytest

from common.crypto.hpke import DEFAULT_SUITE, SUITES, key_id
from common.crypto.key_ring import DAY, KeyState
from common.crypto.signing import SignedTask
from common.errors import BatchStateError, DamagedStorageError, SettingsError, TaskError
from common.messages.batch import BatchId, BatchState
from common.runtime.key_store import KeyStore
from common.runtime.state_directory import StateDirectory
from common.task.task import Task
from common.task_digest import TaskDigest
from shuffler.server import publish_keys
from shuffler.storage.spool import StoredBatch
from tests.support.keys import SCHEDULE
from tests.support.shuffler_core import CASE, DIGEST, Shuffler


async def test_a_full_batch_is_delivered_once_and_erased(shuffler: Shuffler) -> None:
    """
    At the target size, with all sealed reports. Its key is stored encrypted; one left by a crash is
    destroyed at the start, which needs no analyzer to know that the batch is over.
    """
    await shuffler.submit(5)
    [key_file] = shuffler.key_files()
    kept = key_file.read_bytes()
    assert kept.startswith(b"shuffledp sealed secret v1")
    await shuffler.advance()
    await shuffler.advance()

    [(manifest, blob)] = shuffler.analyzer.delivered
    assert (5, 10) == (manifest.n_users, manifest.n_reports)
    assert 10 * CASE.task.sealed_report_bytes == len(blob)
    assert BatchState.ERASED is await shuffler.state()
    assert (await shuffler.collection.status(DIGEST)).shuffle_seconds > 0
    assert [] == shuffler.key_files()
    key_file.touch(mode=0o600)
    key_file.write_bytes(kept)
    shuffler.analyzer.reachable = False
    await shuffler.restart()
    assert [] == shuffler.key_files()
    assert CASE.signed == await shuffler.collection.fetch_task(DIGEST)
    assert BatchState.ERASED is await shuffler.state()
    with pytest.raises(BatchStateError, match="no longer collects"):
        await shuffler.collection.submit(DIGEST, shuffler.envelope())


async def test_minimum_batch_raises_n_min(shuffler: Shuffler) -> None:
    """Also in the status."""
    shuffler.minimum_batch = 6
    await shuffler.restart()
    await shuffler.submit(5)
    await shuffler.advance()

    assert BatchState.COLLECTING is await shuffler.state()
    assert (await shuffler.collection.status(DIGEST)).n_min == 6


async def test_a_failed_step_is_retried_after_growing_pauses(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch's own pause is kept; it doubles, and ends once the analyzer answers."""
    monkeypatch.setattr("shuffler.delivery._TICK", 0.01)
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    shuffler.deliveries._not_before[TaskDigest(bytes(32))] = math.inf
    running = asyncio.create_task(shuffler.deliveries.run())
    async with asyncio.timeout(5):
        while DIGEST not in shuffler.deliveries._not_before:
            await asyncio.sleep(0.01)
    first = shuffler.deliveries._not_before[DIGEST]
    assert first > shuffler.clock.now()
    await asyncio.sleep(0.1)
    assert first == shuffler.deliveries._not_before[DIGEST]

    shuffler.clock.seconds = first
    async with asyncio.timeout(5):
        while shuffler.deliveries._not_before[DIGEST] == first:
            await asyncio.sleep(0.01)
    assert shuffler.deliveries._not_before[DIGEST] - first == 2 * (first - 1_000_000_000)

    shuffler.analyzer.reachable = True
    shuffler.clock.seconds += 100
    async with asyncio.timeout(5):
        while await shuffler.state() is not BatchState.ERASED:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_submission_committed_while_a_batch_expires_keeps_it(shuffler: Shuffler) -> None:
    """An acknowledged submission is not destroyed by a decision made without it."""
    await shuffler.submit(2)
    before = await shuffler.spool.get(DIGEST)
    late = shuffler.envelope()
    await shuffler.collection.submit(DIGEST, late)
    with pytest.raises(BatchStateError, match="had 2 users when it was read; it has 3"):
        await shuffler.spool.set_last_state(before, BatchState.EXPIRED)
    shuffler.clock.seconds = float(CASE.task.deadline)
    await shuffler.advance()

    [(manifest, _)] = shuffler.analyzer.delivered
    assert manifest.n_users == 3


@pytest.mark.parametrize(
    ("failing", "keys"),
    [("common.runtime.state_directory.StateDirectory.destroy", 1), ("shutil.rmtree", 0)],
)
async def test_erasing_a_finished_batch_is_retried(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch, failing: str, keys: int
) -> None:
    """The batch is over in the spool; its key and files follow, the key first."""

    def fail(*_: object) -> None:
        raise OSError

    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    shuffler.analyzer.reachable = True
    with monkeypatch.context() as failures:
        failures.setattr(failing, fail)
        await shuffler.advance()
    assert BatchState.ERASED is await shuffler.state()
    assert (keys, 1) == (len(shuffler.key_files()), len(list(shuffler.path.glob("batches/*"))))
    await shuffler.advance()
    assert [] == shuffler.key_files() == list(shuffler.path.glob("batches/*"))


@pytest.mark.parametrize("permuted", [False, True])
async def test_a_start_on_another_database_destroys_nothing(
    shuffler: Shuffler, *, permuted: bool
) -> None:
    """It is refused; with the right database the batch is delivered."""
    await shuffler.submit(CASE.task.target_size)
    if permuted:
        shuffler.analyzer.reachable = False
        await shuffler.advance()
        shuffler.analyzer.reachable = True
    [key_file] = shuffler.key_files()
    shuffler.spool.close()
    database = shuffler.path / "spool.sqlite"
    aside = database.rename(shuffler.path / "aside")
    for _ in range(2):
        with pytest.raises(SettingsError, match=f"no batch of the key {key_file.name}"):
            await shuffler.start()
        shuffler.spool.close()
        for file in shuffler.path.glob("spool.sqlite*"):
            file.unlink()
    aside.rename(database)
    await shuffler.start()
    await shuffler.advance()

    assert BatchState.ERASED is await shuffler.state()


@pytest.mark.parametrize("crash", [False, True])
async def test_an_operator_closes_a_batch_early(shuffler: Shuffler, *, crash: bool) -> None:
    """With three of five users; it is durable, and closing again changes nothing."""
    await shuffler.submit(3)
    for _ in range(2):
        await shuffler.collection.close(DIGEST)
    if crash:
        await shuffler.restart()
    with pytest.raises(BatchStateError, match="no longer collects"):
        await shuffler.collection.submit(DIGEST, shuffler.envelope())
    await shuffler.advance()
    await shuffler.collection.close(DIGEST)

    [(manifest, _)] = shuffler.analyzer.delivered
    assert 3 == manifest.n_users
    assert BatchState.ERASED is await shuffler.state()


async def test_an_expired_key_is_needed_until_the_batch_is_over(shuffler: Shuffler) -> None:
    """From before the batch is stored; it is destroyed afterwards."""
    key, open_batch = key_id(CASE.task.suite, CASE.task.shuffler_key), shuffler.spool.open_batch

    async def opened(batch_id: BatchId, signed: SignedTask) -> StoredBatch:
        assert {key} == shuffler.batches.needed_keys()
        return await open_batch(batch_id, signed)

    shuffler.spool.open_batch = opened  # type: ignore[method-assign]
    await shuffler.submit(4)
    assert {key} == shuffler.batches.needed_keys()
    late = shuffler.clock.now() + 300 * DAY
    assert not shuffler.keys.rotate(late, shuffler.batches.needed_keys())

    await shuffler.submit(1)
    await shuffler.advance()
    assert BatchState.ERASED is await shuffler.state()
    assert set() == shuffler.batches.needed_keys()
    assert shuffler.keys.rotate(late, shuffler.batches.needed_keys())


def _unreadable(_: bytes) -> Task:
    raise TaskError("of a later version")


@pytest.mark.parametrize("users", [3, 5])
@pytest.mark.parametrize(
    "damage",
    [
        "no key",
        "a later version's task",
        "UPDATE batches SET task = x'00'",
        "UPDATE batches SET state = 'of a later version'",
        "UPDATE batches SET state = CAST(x'ff' AS TEXT)",
    ],
)
async def test_a_batch_that_cannot_be_resumed_waits_for_a_repair(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch, users: int, damage: str
) -> None:
    """The shuffler starts, and keeps every key and file; collecting or permuted."""
    await shuffler.submit(users)
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    state, [key_file] = await shuffler.state(), shuffler.key_files()
    kept = key_file.read_bytes()
    with monkeypatch.context() as damaged:
        if damage == "no key":
            key_file.unlink()
        elif damage == "a later version's task":
            damaged.setattr(Task, "from_bytes", _unreadable)
        else:
            await shuffler.spool._database.run(lambda connection: connection.execute(damage))
        await shuffler.restart()
        late = shuffler.clock.now() + 300 * DAY
        assert not shuffler.keys.rotate(late, shuffler.batches.needed_keys())
        with pytest.raises((BatchStateError, DamagedStorageError, TaskError)):
            await shuffler.collection.fetch_task(DIGEST)
        assert [] == shuffler.batches.unfinished()
    assert (damage == "no key") == (shuffler.key_files() == [])

    key_file.touch(mode=0o600)
    key_file.write_bytes(kept)
    repair, row = "UPDATE batches SET task = ?, state = ?", (CASE.signed.task_bytes, state.value)
    await shuffler.spool._database.run(lambda connection: connection.execute(repair, row))
    await shuffler.restart()
    shuffler.analyzer.reachable = True
    await shuffler.submit(5 - users)
    await shuffler.advance()
    assert BatchState.ERASED is await shuffler.state()


async def test_a_quarantined_batch_needs_no_envelope_key(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if its task cannot be read."""
    await shuffler.submit(5)
    shuffler.analyzer.refuse_with = "INVALID_ARGUMENT"
    await shuffler.advance()
    monkeypatch.setattr(Task, "from_bytes", _unreadable)
    await shuffler.restart()
    assert set() == shuffler.batches.needed_keys()


def _published(path: Path) -> dict[str, str]:
    return {file.name: file.read_text("ascii") for file in path.glob("envelope*.pub")}


def test_active_and_pending_keys_are_published(tmp_path: Path) -> None:
    """envelope.pub is the default suite's active key; others have the suite in their name."""
    state = StateDirectory.open(tmp_path / "state")
    keys = KeyStore(state, SCHEDULE)
    seen = []
    for day in (0, 88, 90):
        keys.rotate(day * DAY, set())
        publish_keys(state, keys)
        seen.append(_published(state.path))
    names = {
        "envelope.pub",
        *(f"envelope-{suite}.pub" for suite in SUITES if suite != DEFAULT_SUITE),
    }

    assert [names, names | {name[:-4] + ".pending.pub" for name in names}, names] == [
        set(files) for files in seen
    ]
    for name in names:
        assert seen[0][name] == seen[1][name]
        assert seen[1][name[:-4] + ".pending.pub"] == seen[2][name]
    assert keys.public_key().raw.hex() == seen[2]["envelope.pub"]
    assert keys.find(DEFAULT_SUITE, KeyState.PENDING) is None
