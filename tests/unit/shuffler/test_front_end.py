"""A front-end's batches, whose keys it gets from the coordinator."""

import asyncio

import pytest

from shuffledp.common.errors import BatchStateError, StorageError, UnknownTaskError
from shuffledp.common.messages.batch import BatchId, BatchState
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.active_batches import ActiveBatch, FinishedBatch
from shuffledp.shuffler.front_end import FrontEndBatches, HeldBatch
from shuffledp.shuffler.storage.sqlite_store import SqliteStore
from shuffledp.shuffler.storage.submission_store import SubmissionStore
from tests.support.shuffler_core import DIGEST, Shuffler


class _Coordinator:
    """Answers from a shuffler's core, and counts the calls."""

    def __init__(self, shuffler: Shuffler) -> None:
        self._shuffler = shuffler
        self.calls = 0

    async def get_batch(self, digest: TaskDigest, *, begin: bool) -> HeldBatch | FinishedBatch:
        """See Coordinator."""
        self.calls += 1
        batches = self._shuffler.batches
        found = await (batches.find_or_begin if begin else batches.find)(digest)
        if isinstance(found, FinishedBatch):
            return found
        return HeldBatch(batch=found, envelope_key=batches.envelope_key(found))


async def test_a_batch_that_begins_during_a_check_is_kept(shuffler: Shuffler) -> None:
    """Its state was not asked for; nor is one dropped whose state cannot be read."""
    front_end: FrontEndBatches

    class _Slow(SqliteStore):
        async def states(self) -> dict[BatchId, BatchState | None]:
            found = await super().states()
            await front_end.find_or_begin(DIGEST)
            return found

    slow = _Slow(shuffler.path / "spool.sqlite", shuffler.clock)
    front_end = FrontEndBatches(_Coordinator(shuffler), slow, lambda: None)
    await front_end.check()
    found = await front_end.find_or_begin(DIGEST)
    assert isinstance(found, ActiveBatch)
    await shuffler.store._database.run(
        lambda connection: connection.execute("UPDATE batches SET state = 'of a later version'")
    )
    await front_end.check()
    slow.close()

    assert found is await front_end.find_or_begin(DIGEST)


async def test_a_batch_is_fetched_once_and_its_keys_dropped_when_it_is_permuted(
    shuffler: Shuffler,
) -> None:
    """Closed batches keep their keys, since retries are still recognized."""
    coordinator, forgotten = _Coordinator(shuffler), list[int]()
    front_end = FrontEndBatches(coordinator, shuffler.store, lambda: forgotten.append(1))
    with pytest.raises(UnknownTaskError):
        await front_end.find(DIGEST)
    first, *others = await asyncio.gather(*(front_end.find_or_begin(DIGEST) for _ in range(9)))
    assert isinstance(first, ActiveBatch)
    assert all(first is other for other in others)
    assert first is await front_end.find(DIGEST)
    assert 2 == coordinator.calls
    await shuffler.submit(3)
    await shuffler.collection.close(DIGEST)
    await front_end.check()
    assert front_end.envelope_key(first).public_key().raw == shuffler.case.task.shuffler_key
    assert [] == forgotten
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    await front_end.check()
    await front_end.check()

    assert BatchState.PERMUTED is await shuffler.batch_state()
    assert isinstance(await front_end.find_or_begin(DIGEST), FinishedBatch)
    with pytest.raises(BatchStateError, match="no longer collects"):
        front_end.envelope_key(first)
    assert ([1], 2) == (forgotten, coordinator.calls)


async def test_a_failed_check_is_retried(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store does not answer, keys are kept and submissions fail anyway."""
    forgotten = asyncio.Event()
    front_end = FrontEndBatches(_Coordinator(shuffler), shuffler.store, forgotten.set)
    await front_end.find_or_begin(DIGEST)
    await shuffler.submit(3)
    await shuffler.collection.close(DIGEST)
    await shuffler.advance()
    states, failures = shuffler.store.states, [StorageError("lost"), StorageError("lost")]

    async def failing(_: SubmissionStore) -> object:
        if failures:
            raise failures.pop()
        return await states()

    monkeypatch.setattr(type(shuffler.store), "states", failing)
    checking = asyncio.create_task(front_end.run(pause=0.001))
    await asyncio.wait_for(forgotten.wait(), 5)
    checking.cancel()

    assert isinstance(await front_end.find(DIGEST), FinishedBatch)
