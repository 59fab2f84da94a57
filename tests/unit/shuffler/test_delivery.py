import asyncio
import math
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shuffledp.audit.harness.party_cores import SCHEDULE
from shuffledp.common.crypto.hpke import DEFAULT_SUITE, SUITES, split_every
from shuffledp.common.crypto.key_ring import DAY, KeyState
from shuffledp.common.crypto.signing import KeyUse, check_key, end_of_validity, split_key
from shuffledp.common.errors import BatchStateError, StorageError
from shuffledp.common.messages.batch import MAX_PART_BYTES, BatchId, BatchState
from shuffledp.common.runtime.blocks import SealedBlocks
from shuffledp.common.runtime.key_store import KeyStore
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.task.uniform_dummies import NegativeBinomialDummies
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.server import publish_keys
from shuffledp.shuffler.shuffle_job import PERMUTED, bucket_count
from shuffledp.shuffler.storage.batch_seeds import BatchSeeds
from shuffledp.shuffler.storage.submission_store import StoredBatch
from tests.support.changed_tasks import changed
from tests.support.disks import disk_of
from tests.support.keys import SHUFFLER
from tests.support.protocol_tasks import protocol_task
from tests.support.shuffler_core import CASE, DIGEST, Shuffler


async def test_a_full_batch_is_delivered_once_and_erased(shuffler: Shuffler) -> None:
    """All reports arrive; a start destroys a key left by a crash, even without the analyzer."""
    await shuffler.submit(5)
    [key_file] = shuffler.key_files()
    kept = key_file.read_bytes()
    assert kept.startswith(b"shuffledp sealed secret v1")
    await shuffler.advance()
    await shuffler.advance()

    [(manifest, blob)] = shuffler.analyzer.delivered
    assert (5, 10) == (manifest.n_users, manifest.n_reports)
    assert 10 * CASE.task.sealed_report_bytes == len(blob)
    assert BatchState.ERASED is await shuffler.batch_state()
    assert (await shuffler.collection.status(DIGEST)).shuffle_seconds > 0
    assert [] == shuffler.key_files()
    key_file.touch(mode=0o600)
    key_file.write_bytes(kept)
    shuffler.analyzer.reachable = False
    await shuffler.restart()
    assert [] == shuffler.key_files()
    assert CASE.signed == await shuffler.collection.fetch_task(DIGEST)
    assert BatchState.ERASED is await shuffler.batch_state()
    with pytest.raises(BatchStateError, match="no longer collects"):
        await shuffler.collection.submit(DIGEST, shuffler.envelope())


async def test_a_failed_step_is_retried_after_growing_pauses(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch's own pause is kept; it doubles, and ends once the analyzer answers."""
    monkeypatch.setattr("shuffledp.shuffler.delivery._TICK", 0.01)
    monkeypatch.setattr("shuffledp.common.runtime.clock._MIN_PAUSE", 1 / 16)
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
        while await shuffler.batch_state() is not BatchState.ERASED:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_batches_are_looked_at_when_something_may_be_due(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while nothing happens; at once for a full batch and at a deadline."""
    monkeypatch.setattr("shuffledp.shuffler.delivery._TICK", 0.01)
    monkeypatch.setattr("shuffledp.shuffler.delivery._LONGEST_WAIT", 3600.0)
    looked, get = list[TaskDigest](), shuffler.store.get

    async def counted(digest: TaskDigest) -> StoredBatch:
        looked.append(digest)
        return await get(digest)

    await shuffler.submit(2)
    monkeypatch.setattr(shuffler.store, "get", counted)
    running = asyncio.create_task(shuffler.deliveries.run())
    await asyncio.sleep(0.2)
    assert 2 >= len(looked)
    await shuffler.submit(1)
    shuffler.clock.seconds = CASE.task.deadline - 0.05
    shuffler.store.changed.set()
    await asyncio.sleep(0.02)
    shuffler.clock.seconds = CASE.task.deadline
    async with asyncio.timeout(30):
        while await shuffler.batch_state() is not BatchState.ERASED:
            await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert [3] == [manifest.n_users for manifest, _ in shuffler.analyzer.delivered]


async def test_a_full_batch_closes_without_a_search(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last submission starts its delivery."""
    monkeypatch.setattr("shuffledp.shuffler.delivery._LONGEST_WAIT", 3600.0)
    await shuffler.submit(4)
    running = asyncio.create_task(shuffler.deliveries.run())
    await asyncio.sleep(0.2)
    await shuffler.submit(1)
    async with asyncio.timeout(30):
        while await shuffler.batch_state() is not BatchState.ERASED:
            await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert 1 == len(shuffler.analyzer.delivered)


async def test_a_submission_committed_while_a_batch_expires_keeps_it(shuffler: Shuffler) -> None:
    """An acknowledged submission is not destroyed by a decision made without it."""
    await shuffler.submit(2)
    before = await shuffler.store.get(DIGEST)
    late = shuffler.envelope()
    await shuffler.collection.submit(DIGEST, late)
    with pytest.raises(BatchStateError, match="had 2 users when it was read; it now has 3"):
        await shuffler.store.set_state(before, BatchState.EXPIRED)
    shuffler.clock.seconds = float(CASE.task.deadline)
    await shuffler.advance()

    [(manifest, _)] = shuffler.analyzer.delivered
    assert manifest.n_users == 3


@pytest.mark.parametrize(
    ("failing", "keys"),
    [
        ("shuffledp.shuffler.active_batches.ActiveBatches.destroy_key", 1),
        ("shutil.rmtree", 0),
        ("shuffledp.audit.harness.party_cores.InlineExecutor.forget_keys", 0),
    ],
)
async def test_erasing_a_finished_batch_is_retried(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch, failing: str, keys: int
) -> None:
    """The batch is over in the store; its key and files follow, the key first."""
    asked = list[str]()

    def fail(*_: object) -> None:
        asked.append(failing)
        raise OSError

    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    shuffler.analyzer.reachable = True
    with monkeypatch.context() as failures:
        failures.setattr(failing, fail)
        await shuffler.advance()
    assert BatchState.ERASED is await shuffler.batch_state()
    assert (keys, 1) == (len(shuffler.key_files()), len(shuffler.batches.unfinished()))
    assert [failing] == asked
    await shuffler.advance()
    assert [] == [*shuffler.key_files(), *_folders(shuffler), *shuffler.batches.unfinished()]


def test_active_and_pending_keys_are_published(tmp_path: Path) -> None:
    """envelope.pub is the default suite's active key; others have the suite in their name."""
    state = StateDirectory.open(tmp_path / "state")
    keys = KeyStore(state, SCHEDULE)
    seen = []
    for day in (0, 88, 90):
        keys.rotate(day * DAY, set())
        publish_keys(state, keys, SHUFFLER)
        seen.append({file.name: file.read_text() for file in state.path.glob("envelope*.pub")})
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
    key, proof = split_key(DEFAULT_SUITE, KeyUse.ENVELOPES, bytes.fromhex(seen[2]["envelope.pub"]))
    assert (keys.public_key().raw, (90 + 90 + 5 * 365) * DAY) == (key, end_of_validity(proof))
    check_key(SHUFFLER.public_identity(), KeyUse.ENVELOPES, DEFAULT_SUITE, key, proof)
    assert keys.find(DEFAULT_SUITE, KeyState.PENDING) is None


_SIZE = CASE.task.sealed_report_bytes


def _folders(shuffler: Shuffler) -> list[Path]:
    return [path for path in shuffler.path.glob("blocks/*") if not path.name.startswith("proof")]


def _rows(shuffler: Shuffler, query: str) -> list[str]:
    """Return the first column of a query to the store's file."""
    with closing(sqlite3.connect(shuffler.path / "spool.sqlite")) as connection:
        return [row[0] for row in connection.execute(query)]


def _groups(shuffler: Shuffler) -> int:
    return len(_rows(shuffler, "SELECT number FROM submission_groups"))


def _tables_with_rows(shuffler: Shuffler) -> set[str]:
    names = _rows(shuffler, "SELECT name FROM sqlite_schema WHERE type = 'table'")
    return {name for name in names if _rows(shuffler, f"SELECT 1 FROM {name} LIMIT 1")}  # noqa: S608


def _seeds(shuffler: Shuffler) -> list[Path]:
    return list(shuffler.path.glob("seed-*.key"))


async def _permuted(shuffler: Shuffler) -> bytes:
    """Read the permuted batch, which has one part."""
    [batch] = shuffler.batches.unfinished()
    folder = batch.batch_id.hex()
    blocks = SealedBlocks(shuffler.blocks, folder, batch.key)
    return blocks.get(f"{PERMUTED}/0")


class _Killed(Exception):  # noqa: N818  # not an error of the program
    """The process ends here."""


async def test_a_delivered_batch_leaves_only_its_inclusion_proof(shuffler: Shuffler) -> None:
    """No group, bucket, permuted batch or key is left."""
    before = {path.name for path in shuffler.path.rglob("*")}
    await shuffler.submit(5)
    await shuffler.advance()
    after = {path.name for path in shuffler.path.rglob("*")}

    assert BatchState.ERASED is await shuffler.batch_state()
    shown = {f"proof-{DIGEST.hex()}", "buckets", "commitment", "leaves.0"}
    assert shown == after - before - {"blocks", "spool.sqlite-wal", "spool.sqlite-shm"}
    assert (0, [], []) == (_groups(shuffler), _folders(shuffler), shuffler.key_files())


async def test_an_expired_batch_leaves_only_counts(shuffler: Shuffler) -> None:
    """Counts of users and refusals stay; no hash or key does."""
    await shuffler.submit(2)
    await shuffler.collection.submit_bulk(DIGEST, [b"short"])
    await shuffler.refusals.save()
    shuffler.clock.seconds = float(CASE.task.deadline)
    await shuffler.advance()

    assert {"schema_version", "batches", "refusals"} == _tables_with_rows(shuffler)
    assert not (shuffler.path / "blocks").exists()
    assert 2 == (await shuffler.collection.status(DIGEST)).n_users
    assert BatchState.EXPIRED is await shuffler.batch_state()
    assert ([], [], []) == (shuffler.analyzer.delivered, _folders(shuffler), shuffler.key_files())


@pytest.mark.parametrize("moment", ["while it is written", "before it is recorded"])
async def test_an_unrecorded_permutation_is_removed_and_made_again(
    shuffler: Shuffler, moment: str
) -> None:
    """The next start removes its blocks, and the next shuffle follows from the same seed."""
    await shuffler.submit(5)
    record = shuffler.store.set_state

    async def killed(batch: StoredBatch, state: BatchState) -> None:
        if state is BatchState.PERMUTED:
            raise _Killed
        await record(batch, state)

    shuffler.store.set_state = killed  # type: ignore[method-assign]
    await shuffler.advance()
    assert BatchState.CLOSED is await shuffler.batch_state()
    [folder], [seed] = _folders(shuffler), _seeds(shuffler)
    first = await _permuted(shuffler)
    if moment == "while it is written":
        (folder / PERMUTED / "0").rename(folder / PERMUTED / ".0.scratch")
    shuffler.store.set_state = record  # type: ignore[method-assign]
    await shuffler.restart()
    assert [] == _folders(shuffler)
    assert [seed] == _seeds(shuffler)
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    assert first == await _permuted(shuffler)
    assert [] == _seeds(shuffler)
    shuffler.analyzer.reachable = True
    await shuffler.advance()

    [(manifest, blob)] = shuffler.analyzer.delivered
    assert (5, 10 * _SIZE, 10) == (manifest.n_users, len(blob), len(set(split_every(blob, _SIZE))))


async def test_a_start_destroys_the_seed_of_a_recorded_permutation(shuffler: Shuffler) -> None:
    """A crash may come between the record and the destruction."""
    await shuffler.submit(5)
    [batch] = shuffler.batches.unfinished()
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    next(shuffler.path.glob("seed-*.used")).unlink()
    BatchSeeds(shuffler.open_state()).of(batch.batch_id)
    assert 1 == len(_seeds(shuffler))
    await shuffler.restart()

    assert BatchState.PERMUTED is await shuffler.batch_state()
    assert [] == _seeds(shuffler)


async def test_a_recorded_permutation_is_delivered_unchanged(shuffler: Shuffler) -> None:
    """A crash before the submissions are dropped, or a lost answer, changes nothing."""
    await shuffler.submit(5)

    async def killed(batch_id: BatchId) -> None:
        raise _Killed(batch_id)

    shuffler.store.clean_up = killed  # type: ignore[method-assign]
    await shuffler.advance()
    assert BatchState.PERMUTED is await shuffler.batch_state()
    assert _groups(shuffler) > 0
    order = await _permuted(shuffler)
    await shuffler.restart()
    assert 0 == _groups(shuffler)
    for lose_answers in (True, False):
        shuffler.analyzer.lose_answers = lose_answers
        await shuffler.advance()

    assert [] == _seeds(shuffler)
    [(_, blob)] = shuffler.analyzer.delivered
    assert order == blob
    assert [0] == shuffler.analyzer.received
    assert BatchState.ERASED is await shuffler.batch_state()


async def test_a_seed_is_destroyed_before_the_delivery_without_a_restart(
    shuffler: Shuffler,
) -> None:
    """Also if the step that records the permuted batch failed after its record."""
    await shuffler.submit(5)
    drop = shuffler.store.clean_up

    async def killed(batch_id: BatchId) -> None:
        raise _Killed(batch_id)

    shuffler.store.clean_up = killed  # type: ignore[method-assign]
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    assert BatchState.PERMUTED is await shuffler.batch_state()
    shuffler.store.clean_up = drop  # type: ignore[method-assign]
    await shuffler.advance()

    assert [] == _seeds(shuffler)


async def test_a_batch_is_not_permuted_again_on_a_store_that_was_set_back(
    shuffler: Shuffler,
) -> None:
    """Parts of two orders, or of two samples, would reach the analyzer."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    backup = shuffler.path / "backup.sqlite"

    def copy(connection: sqlite3.Connection) -> None:
        with closing(sqlite3.connect(backup)) as other:
            connection.commit()
            connection.backup(other)

    await shuffler.store._database.run(copy)
    await shuffler.advance()
    assert BatchState.PERMUTED is await shuffler.batch_state()
    order = await _permuted(shuffler)
    shuffler.store.close()
    for path in shuffler.path.glob("spool.sqlite*"):
        path.unlink()
    backup.rename(shuffler.path / "spool.sqlite")
    await shuffler.start()
    shuffler.analyzer.reachable = True
    await shuffler.advance()

    assert BatchState.PERMUTED is not await shuffler.batch_state()
    assert ([], []) == (shuffler.analyzer.delivered, _seeds(shuffler))
    assert order == await _permuted(shuffler)


def test_no_part_is_too_large_even_if_all_submissions_are_the_longest() -> None:
    """Dishonest users may choose their length: here 201 reports where 1.1 are expected."""
    spec = NegativeBinomialDummies(per_user=0, trials=1, extra_weight=2**29, most=200)
    task = changed(protocol_task("od-hp"), dummies=spec)
    for users in (1, 10**6, 2 * 10**8):
        most = users * 201 * task.sealed_report_bytes

        assert most / bucket_count(task, users) <= MAX_PART_BYTES / 2


async def test_a_batch_of_several_parts_is_delivered(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten reports in four parts, one after the other."""
    monkeypatch.setattr("shuffledp.shuffler.shuffle_job.PART_BYTES", 3 * _SIZE)
    monkeypatch.setattr("shuffledp.shuffler.shuffle_job.BLOCK_BYTES", 1)
    await shuffler.submit(5)
    [batch] = shuffler.batches.unfinished()
    await shuffler.advance()

    assert 4 == bucket_count(batch.task, 5)
    [(_, blob)] = shuffler.analyzer.delivered
    assert 10 == len(set(split_every(blob, _SIZE)))


async def test_only_parts_that_have_not_arrived_are_sent_again(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second part of four is lost the first time."""
    monkeypatch.setattr("shuffledp.shuffler.shuffle_job.PART_BYTES", 3 * _SIZE)
    monkeypatch.setattr("shuffledp.shuffler.shuffle_job.BLOCK_BYTES", 1)
    await shuffler.submit(5)
    shuffler.analyzer.lose_parts = True
    await shuffler.advance()
    assert BatchState.PERMUTED is await shuffler.batch_state()
    assert set(shuffler.analyzer.received) <= {0, 2}
    shuffler.analyzer.lose_parts = False
    await shuffler.advance()

    assert [0, 1, 2, 3] == sorted(shuffler.analyzer.received)
    [(_, blob)] = shuffler.analyzer.delivered
    assert 10 == len(set(split_every(blob, _SIZE)))


@pytest.mark.parametrize("damage", ["a flipped bit", "a lost end", "no file"])
async def test_a_damaged_permuted_batch_is_not_delivered(shuffler: Shuffler, damage: str) -> None:
    """The batch keeps state and key for an operator; if the analyzer has it, it is erased."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    order = _folders(shuffler)[0] / PERMUTED / "0"
    content = order.read_bytes()
    if damage == "a flipped bit":
        order.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "a lost end":
        os.truncate(order, 0)
    else:
        order.unlink()
    shuffler.analyzer.reachable = True
    await shuffler.advance()
    assert BatchState.PERMUTED is await shuffler.batch_state()
    assert ([], 1) == (shuffler.analyzer.delivered, len(shuffler.key_files()))

    shuffler.analyzer.stage(bytes(10 * _SIZE))  # as if an earlier delivery had arrived
    await shuffler.advance()
    assert BatchState.ERASED is await shuffler.batch_state()
    assert [] == shuffler.key_files() == list((shuffler.path / "blocks").iterdir())


async def test_a_proof_waits_for_its_store(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure that may pass leaves the key, so that the proof can be made afterwards."""
    keep = shuffler.inclusions.keep

    async def fail(*_: object) -> None:
        raise StorageError("the object store does not answer")

    monkeypatch.setattr(shuffler.inclusions, "keep", fail)
    await shuffler.submit(5)
    await shuffler.advance()
    assert BatchState.SENT is await shuffler.batch_state()
    assert 1 == len(shuffler.key_files())
    monkeypatch.setattr(shuffler.inclusions, "keep", keep)
    await shuffler.advance()

    assert BatchState.ERASED is await shuffler.batch_state()
    assert [] == shuffler.key_files()
    assert 1 == len(shuffler.analyzer.delivered)
    [kept] = (shuffler.path / "blocks").iterdir()
    assert f"proof-{DIGEST.hex()}" == kept.name


async def test_a_full_disk_delays_the_shuffle(shuffler: Shuffler) -> None:
    """Nothing is lost; the batch is delivered once there is space."""
    await shuffler.submit(5)
    [found] = shuffler.batches.unfinished()
    await shuffler.store.set_state(await shuffler.store.get(DIGEST), BatchState.CLOSED)
    with disk_of(300):
        await shuffler.advance()
        assert BatchState.CLOSED is await shuffler.batch_state()
    await shuffler.advance()

    [(manifest, blob)] = shuffler.analyzer.delivered
    assert (5, 10 * _SIZE) == (manifest.n_users, len(blob))
    assert found.batch_id == manifest.batch_id
