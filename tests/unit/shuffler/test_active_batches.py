import asyncio
import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

from shuffledp.audit.harness.party_cores import store_holding
from shuffledp.common import errors
from shuffledp.common.crypto.hpke import HpkePrivateKey, key_id
from shuffledp.common.crypto.key_ring import DAY
from shuffledp.common.crypto.signing import SignedTask, SigningIdentity
from shuffledp.common.messages.batch import BatchId, BatchState
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.task.shuffler_spec import BinomialNoise, ShufflerSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.storage.submission_store import StoredBatch
from tests.support.analyzers import MemoryAnalyzer
from tests.support.shuffler_core import CASE, DIGEST, Shuffler
from tests.support.tasks import SHUFFLER_NOISE, published


async def test_tasks_for_other_shufflers_are_refused(shuffler: Shuffler) -> None:
    """The task is unknown, another one, by another signer, or sealed to another key."""
    with pytest.raises(errors.UnknownTaskError):
        await shuffler.collection.submit(TaskDigest(bytes(32)), b"")

    forged = SigningIdentity.generate().sign(CASE.task.to_bytes())
    shuffler.batches.analyzer = dataclasses.replace(
        shuffler.batches.analyzer, client=MemoryAnalyzer(forged)
    )
    with pytest.raises(errors.ProofError):
        await shuffler.collection.fetch_task(DIGEST)

    other = CASE.identity.sign(dataclasses.replace(CASE.task, nonce=bytes(32)).to_bytes())
    wrong = MemoryAnalyzer(CASE.signed)
    wrong.get_task = lambda _: asyncio.sleep(0, other)  # type: ignore[method-assign, assignment]
    shuffler.batches.analyzer = dataclasses.replace(shuffler.batches.analyzer, client=wrong)
    with pytest.raises(errors.ProofError, match="not the requested task"):
        await shuffler.collection.fetch_task(DIGEST)

    shuffler.batches.analyzer = dataclasses.replace(
        shuffler.batches.analyzer, client=MemoryAnalyzer(CASE.signed)
    )
    elsewhere = StateDirectory.open(shuffler.path / "elsewhere")
    shuffler.batches.keys = store_holding(elsewhere, HpkePrivateKey.generate())
    with pytest.raises(
        errors.UnknownKeyError, match=r"shuffler_key, [0-9a-f]{16}, is not a key of"
    ):
        await shuffler.collection.fetch_task(DIGEST)
    assert shuffler.key_files() == []


async def test_a_task_with_too_many_dummies_is_refused(tmp_path: Path) -> None:
    """A task at the limit is accepted."""
    spec = ShufflerSpec(noise=BinomialNoise(trials=600))
    case = published(**SHUFFLER_NOISE, domain_size=7, delta=1e-2, shuffler=spec)
    expected = case.task.shuffler.expected_dummies
    shuffler = Shuffler(tmp_path, case=case, most_dummies=expected)
    await shuffler.start()
    shuffler.batches.most_dummies = expected - 1
    with pytest.raises(errors.TaskError):
        await shuffler.collection.fetch_task(case.signed.digest())
    shuffler.batches.most_dummies = expected
    await shuffler.collection.fetch_task(case.signed.digest())
    shuffler.store.close()


async def test_concurrent_requests_begin_one_batch(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is fetched once and parsed in a thread; there is one key, and no file per user."""
    parse = Task.from_bytes

    def parsed(raw: bytes) -> Task:
        assert threading.current_thread() is not threading.main_thread()
        return parse(raw)

    monkeypatch.setattr(Task, "from_bytes", parsed)
    await asyncio.gather(*(shuffler.collection.fetch_task(DIGEST) for _ in range(10)))
    assert (1, 1) == (shuffler.analyzer.fetched, len(shuffler.key_files()))
    await shuffler.submit(1)
    before = sorted(shuffler.path.rglob("*"))
    await shuffler.submit(2)

    assert before == sorted(shuffler.path.rglob("*"))


async def test_concurrent_lookups_of_unknown_tasks_are_limited(shuffler: Shuffler) -> None:
    """There are at most 256, also when the callers hang up."""
    going_on = asyncio.Event()

    async def slow(digest: TaskDigest) -> SignedTask:
        await going_on.wait()
        raise errors.PeerRefusalError("NOT_FOUND", digest.hex())

    shuffler.analyzer.get_task = slow  # type: ignore[method-assign]
    asking = [
        asyncio.create_task(shuffler.collection.fetch_task(TaskDigest(number.to_bytes(32))))
        for number in range(257)
    ]
    async with asyncio.timeout(5):
        with pytest.raises(errors.OverloadError, match="256 task lookups are running"):
            await asking.pop()
    for one in asking:
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    looked_for: list[Any] = list(shuffler.batches._lookups[True].values())
    going_on.set()
    await asyncio.wait(looked_for)

    assert {} == shuffler.batches._lookups[True]
    # An error that nobody retrieves would be logged with its traceback.
    assert not any(one._log_traceback for one in looked_for)


async def test_minimum_batch_raises_n_min(shuffler: Shuffler) -> None:
    """The status shows the raised number."""
    shuffler.limits["minimum_batch"] = 6
    await shuffler.restart()
    await shuffler.submit(5)
    await shuffler.advance()

    assert BatchState.COLLECTING is await shuffler.batch_state()
    assert (await shuffler.collection.status(DIGEST)).n_min == 6


@pytest.mark.parametrize("permuted", [False, True])
async def test_a_start_on_another_database_destroys_nothing(
    shuffler: Shuffler, *, permuted: bool
) -> None:
    """The start is refused; with the right database the batch is delivered."""
    await shuffler.submit(CASE.task.target_size)
    if permuted:
        shuffler.analyzer.reachable = False
        await shuffler.advance()
        shuffler.analyzer.reachable = True
    [key_file] = shuffler.key_files()
    shuffler.store.close()
    database = shuffler.path / "spool.sqlite"
    aside = database.rename(shuffler.path / "aside")
    for _ in range(2):
        with pytest.raises(
            errors.SettingsError, match=f"no batch for the key file {key_file.name}"
        ):
            await shuffler.start()
        shuffler.store.close()
        for file in shuffler.path.glob("spool.sqlite*"):
            file.unlink()
    aside.rename(database)
    await shuffler.start()
    await shuffler.advance()

    assert BatchState.ERASED is await shuffler.batch_state()


async def test_an_expired_key_is_needed_until_the_batch_is_over(shuffler: Shuffler) -> None:
    """The key is needed before the batch is stored, and destroyed after the batch is over."""
    key, open_batch = key_id(CASE.task.suite, CASE.task.shuffler_key), shuffler.store.open_batch

    async def opened(batch_id: BatchId, signed: SignedTask) -> StoredBatch:
        assert {key} == await shuffler.batches.needed_keys()
        return await open_batch(batch_id, signed)

    shuffler.store.open_batch = opened  # type: ignore[method-assign]
    await shuffler.submit(4)
    assert {key} == await shuffler.batches.needed_keys()
    late = shuffler.clock.now() + 300 * DAY
    assert not shuffler.keys.rotate(late, await shuffler.batches.needed_keys())

    await shuffler.submit(1)
    await shuffler.advance()
    assert BatchState.ERASED is await shuffler.batch_state()
    assert set() == await shuffler.batches.needed_keys()
    assert shuffler.keys.rotate(late, await shuffler.batches.needed_keys())


def _unreadable(_: bytes) -> Task:
    raise errors.TaskError("of a later version")


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
    state, [key_file] = await shuffler.batch_state(), shuffler.key_files()
    kept = key_file.read_bytes()
    with monkeypatch.context() as damaged:
        if damage == "no key":
            key_file.unlink()
        elif damage == "a later version's task":
            damaged.setattr(Task, "from_bytes", _unreadable)
        else:
            await shuffler.store._database.run(lambda connection: connection.execute(damage))
        await shuffler.restart()
        late = shuffler.clock.now() + 300 * DAY
        assert not shuffler.keys.rotate(late, await shuffler.batches.needed_keys())
        with pytest.raises((errors.BatchStateError, errors.DamagedStorageError, errors.TaskError)):
            await shuffler.collection.fetch_task(DIGEST)
        assert [] == shuffler.batches.unfinished()
    assert (damage == "no key") == (shuffler.key_files() == [])

    key_file.touch(mode=0o600)
    key_file.write_bytes(kept)
    repair, row = "UPDATE batches SET task = ?, state = ?", (CASE.signed.task_bytes, state.value)
    await shuffler.store._database.run(lambda connection: connection.execute(repair, row))
    await shuffler.restart()
    shuffler.analyzer.reachable = True
    await shuffler.submit(5 - users)
    await shuffler.advance()
    assert BatchState.ERASED is await shuffler.batch_state()


async def test_a_quarantined_batch_needs_no_envelope_key(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task may even be unreadable."""
    await shuffler.submit(5)
    shuffler.analyzer.refuse_with = "INVALID_ARGUMENT"
    await shuffler.advance()
    monkeypatch.setattr(Task, "from_bytes", _unreadable)
    await shuffler.restart()
    assert set() == await shuffler.batches.needed_keys()
