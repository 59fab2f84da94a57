import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from common.batch import BatchState
from common.errors import (
    BatchStateError,
    PeerError,
    SealError,
    SignatureError,
    SubmissionConflictError,
    TaskError,
    UnknownTaskError,
    WireError,
)
from common.hpke import HpkePrivateKey, envelope_context
from common.runtime.state import StateDirectory
from common.signing import SigningIdentity
from common.submission import Outcome
from common.task_digest import TaskDigest
from shuffler.collection import Collection
from shuffler.delivery import Deliveries
from shuffler.rounds import Rounds
from shuffler.spool import Spool
from tests.support.analyzers import MemoryAnalyzer
from tests.support.clocks import ManualClock
from tests.support.pools import InlinePool
from tests.support.tasks import PublishedTask, published
from user_agent.contribution import Contributor

_CASE = published(n_min=3, target_size=5)
_DIGEST = _CASE.signed.digest()


@dataclass
class Shuffler:
    """A shuffler's core over a double of an analyzer, with time under control."""

    path: Path
    case: PublishedTask = _CASE
    minimum_batch: int = 1

    def __post_init__(self) -> None:
        self.analyzer = MemoryAnalyzer(self.case.signed)
        self.clock = ManualClock()
        self.rng = np.random.default_rng(1)
        self._contributor = Contributor(self.case.task, self.case.signed.digest())

    async def start(self) -> None:
        """Start, or start again after a crash."""
        self.spool = Spool(self.path / "spool.sqlite")
        self.rounds = Rounds(
            spool=self.spool,
            state=StateDirectory.open(self.path),
            analyzer=self.analyzer,
            identity=self.case.identity.public_identity(),
            key=self.case.shuffler_key.public_key(),
            minimum_batch=self.minimum_batch,
            rng=self.rng,
        )
        await self.rounds.resume()
        self.collection = Collection(
            rounds=self.rounds,
            spool=self.spool,
            key=self.case.shuffler_key,
            pool=InlinePool(self.case.shuffler_key),
            clock=self.clock,
        )
        self.deliveries = Deliveries(
            rounds=self.rounds,
            spool=self.spool,
            analyzer=self.analyzer,
            clock=self.clock,
            rng=self.rng,
        )

    def envelope(self, value: int = 0) -> bytes:
        """One user's envelope."""
        return self._contributor.prepare(value, self.rng)

    async def submit(self, count: int) -> None:
        """Let some users submit."""
        digest = self.case.signed.digest()
        outcomes = await self.collection.submit_bulk(
            digest, [self.envelope() for _ in range(count)]
        )
        assert [Outcome.STORED] * count == outcomes

    async def state(self) -> BatchState:
        """Where the batch is."""
        return (await self.collection.status(self.case.signed.digest())).state

    async def users(self) -> int:
        """How many submissions are stored."""
        return (await self.spool.get(self.case.signed.digest())).n_users

    def key_files(self) -> list[Path]:
        """Keys of batches that are not over."""
        return list(self.path.glob("batch-*.key"))


@pytest.fixture
async def shuffler(tmp_path: Path) -> AsyncIterator[Shuffler]:
    """A started shuffler."""
    started = Shuffler(tmp_path)
    await started.start()
    yield started
    started.spool.close()


async def test_a_full_batch_is_delivered_once_and_erased(shuffler: Shuffler) -> None:
    """At the target size: all sealed reports, no more, and the batch's key is gone."""
    await shuffler.submit(5)
    await shuffler.deliveries.advance()
    await shuffler.deliveries.advance()

    [(manifest, blob)] = shuffler.analyzer.delivered
    assert (5, 10) == (manifest.n_users, manifest.n_reports)
    assert 10 * _CASE.task.sealed_report_bytes == len(blob)
    assert BatchState.ERASED is await shuffler.state()
    assert shuffler.key_files() == []


async def test_below_n_min_nothing_is_ever_released(shuffler: Shuffler) -> None:
    """At the deadline the batch expires and is destroyed."""
    await shuffler.submit(2)
    shuffler.clock.seconds = float(_CASE.task.deadline)
    await shuffler.deliveries.advance()

    assert BatchState.EXPIRED is await shuffler.state()
    assert shuffler.analyzer.delivered == []
    assert shuffler.key_files() == []


async def test_at_the_deadline_n_min_users_suffice(shuffler: Shuffler) -> None:
    """Three of a target of five."""
    await shuffler.submit(3)
    await shuffler.deliveries.advance()
    assert BatchState.COLLECTING is await shuffler.state()

    shuffler.clock.seconds = float(_CASE.task.deadline)
    await shuffler.deliveries.advance()
    assert BatchState.ERASED is await shuffler.state()


async def test_a_shuffler_may_insist_on_more_users_than_the_task(tmp_path: Path) -> None:
    """minimum_batch raises n_min, and is what the status shows."""
    strict = Shuffler(tmp_path, minimum_batch=6)
    await strict.start()
    await strict.submit(5)
    await strict.deliveries.advance()

    assert BatchState.COLLECTING is await strict.state()
    assert (await strict.collection.status(_DIGEST)).n_min == 6
    strict.spool.close()


async def test_the_saved_order_is_delivered_again_after_a_lost_answer(shuffler: Shuffler) -> None:
    """Same batch id, same bytes in the same order: a second permutation could be compared."""
    await shuffler.submit(5)
    shuffler.analyzer.lose_answers = True
    await shuffler.deliveries.advance()
    assert BatchState.PERMUTED is await shuffler.state()
    shuffler.spool.close()

    await shuffler.start()
    shuffler.analyzer.lose_answers = False
    await shuffler.deliveries.advance()

    first, second = shuffler.analyzer.delivered
    assert first == second
    assert BatchState.ERASED is await shuffler.state()


async def test_an_analyzer_that_is_away_is_tried_again(shuffler: Shuffler) -> None:
    """Nothing is lost meanwhile."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    await shuffler.deliveries.advance()
    assert BatchState.PERMUTED is await shuffler.state()

    shuffler.analyzer.reachable = True
    await shuffler.deliveries.advance()
    assert BatchState.ERASED is await shuffler.state()


@pytest.mark.parametrize(
    ("status", "state"),
    [("INVALID_ARGUMENT", BatchState.QUARANTINED), ("ALREADY_EXISTS", BatchState.QUARANTINED)],
)
async def test_a_batch_that_the_analyzer_refuses_is_quarantined(
    shuffler: Shuffler, status: str, state: BatchState
) -> None:
    """It is kept, with its key, for an operator to look into."""
    await shuffler.submit(5)
    shuffler.analyzer.refuse_with = status
    await shuffler.deliveries.advance()

    assert state is await shuffler.state()
    assert len(shuffler.key_files()) == 1


async def test_submissions_survive_a_restart(shuffler: Shuffler) -> None:
    """What was acknowledged before a crash is delivered after it."""
    await shuffler.submit(4)
    shuffler.spool.close()
    await shuffler.start()
    await shuffler.submit(1)
    await shuffler.deliveries.advance()

    [(manifest, _)] = shuffler.analyzer.delivered
    assert manifest.n_users == 5


async def test_a_leftover_key_is_destroyed_at_the_next_start(shuffler: Shuffler) -> None:
    """A crash between recording the end and destroying the key is made good."""
    await shuffler.submit(5)
    [key_file] = shuffler.key_files()
    kept = key_file.read_bytes()
    await shuffler.deliveries.advance()
    key_file.touch(mode=0o600)
    key_file.write_bytes(kept)
    shuffler.spool.close()
    await shuffler.start()

    assert shuffler.key_files() == []
    assert BatchState.ERASED is await shuffler.state()


async def test_a_retry_is_recognised_until_the_batch_is_over(shuffler: Shuffler) -> None:
    """The same bytes are stored once; the same id with other reports is a conflict."""
    envelope = shuffler.envelope()
    assert Outcome.STORED is await shuffler.collection.submit(_DIGEST, envelope)
    assert Outcome.REPEATED is await shuffler.collection.submit(_DIGEST, envelope)
    assert await shuffler.users() == 1

    inner = _CASE.shuffler_key.open(envelope, envelope_context(_DIGEST))
    other = inner[:16] + bytes(len(inner) - 16)
    forged = _CASE.shuffler_key.public_key().seal(other, envelope_context(_DIGEST))
    with pytest.raises(SubmissionConflictError):
        await shuffler.collection.submit(_DIGEST, forged)

    await shuffler.submit(4)
    await shuffler.deliveries.advance()
    with pytest.raises(BatchStateError):
        await shuffler.collection.submit(_DIGEST, envelope)


async def test_bad_envelopes_are_refused_and_the_good_ones_kept(shuffler: Shuffler) -> None:
    """Alone with an error of its own, in bulk each in its place."""
    good = shuffler.envelope()
    flipped = bytes([good[0] ^ 1]) + good[1:]
    short = _CASE.shuffler_key.public_key().seal(bytes(16 + 60), envelope_context(_DIGEST))
    elsewhere = _CASE.shuffler_key.public_key().seal(
        bytes(16 + 120), envelope_context(TaskDigest(bytes(32)))
    )
    for bad, kind in (
        (good[:-1], WireError),
        (good + b"\0", WireError),
        (b"", WireError),
        (short, WireError),
        (flipped, SealError),
        (elsewhere, SealError),
    ):
        with pytest.raises(kind):
            await shuffler.collection.submit(_DIGEST, bad)

    bulk = [good[:-1], good, flipped, b"", elsewhere]
    assert [
        Outcome.MALFORMED,
        Outcome.STORED,
        Outcome.MALFORMED,
        Outcome.MALFORMED,
        Outcome.MALFORMED,
    ] == await shuffler.collection.submit_bulk(_DIGEST, bulk)
    assert await shuffler.users() == 1


async def test_tasks_that_are_not_for_this_shuffler_are_refused(tmp_path: Path) -> None:
    """Unknown, signed by another, or sealed to another shuffler's key."""
    shuffler = Shuffler(tmp_path)
    await shuffler.start()
    with pytest.raises(UnknownTaskError):
        await shuffler.collection.submit(TaskDigest(bytes(32)), b"")

    forged = SigningIdentity.generate().sign(_CASE.task.to_bytes())
    shuffler.rounds._analyzer = MemoryAnalyzer(forged)
    with pytest.raises(SignatureError):
        await shuffler.collection.fetch_task(_DIGEST)

    shuffler.rounds._analyzer = MemoryAnalyzer(_CASE.signed)
    shuffler.rounds._key = HpkePrivateKey.generate().public_key()
    with pytest.raises(TaskError, match="another shuffler"):
        await shuffler.collection.fetch_task(_DIGEST)
    assert shuffler.key_files() == []
    shuffler.spool.close()


async def test_a_task_cannot_be_fetched_while_the_analyzer_is_away(shuffler: Shuffler) -> None:
    """The caller may try again."""
    shuffler.analyzer.reachable = False
    with pytest.raises(PeerError):
        await shuffler.collection.fetch_task(_DIGEST)


async def test_the_status_does_not_tell_when_users_come(shuffler: Shuffler) -> None:
    """A count that grew while polling would time every submission; it is shown once closed."""
    await shuffler.submit(4)
    assert (await shuffler.collection.status(_DIGEST)).n_users == 0

    await shuffler.submit(1)
    await shuffler.deliveries.advance()
    assert (await shuffler.collection.status(_DIGEST)).n_users == 5


async def test_asking_for_a_status_begins_nothing(shuffler: Shuffler) -> None:
    """A task that nobody fetched has no batch, and gets none."""
    with pytest.raises(UnknownTaskError):
        await shuffler.collection.status(_DIGEST)
    assert shuffler.key_files() == []


async def test_after_the_deadline_nothing_new_is_taken(shuffler: Shuffler) -> None:
    """Even before the batch has been moved on; a retry is still recognised."""
    envelope = shuffler.envelope()
    await shuffler.collection.submit(_DIGEST, envelope)
    shuffler.clock.seconds = float(_CASE.task.deadline)

    assert Outcome.REPEATED is await shuffler.collection.submit(_DIGEST, envelope)
    with pytest.raises(BatchStateError):
        await shuffler.collection.submit(_DIGEST, shuffler.envelope())


async def test_devices_that_ask_at_once_share_one_round(shuffler: Shuffler) -> None:
    """One task is one batch, with one key."""
    await asyncio.gather(*(shuffler.collection.fetch_task(_DIGEST) for _ in range(10)))

    assert len(shuffler.key_files()) == 1


async def test_a_batch_that_cannot_move_on_pauses_and_recovers(shuffler: Shuffler) -> None:
    """Whatever goes wrong, it is tried again later, and later each time."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    running = asyncio.create_task(shuffler.deliveries.run())
    while not shuffler.deliveries._not_before:
        await asyncio.sleep(0.01)
    first = shuffler.deliveries._not_before[_DIGEST]
    assert first > shuffler.clock.now()

    shuffler.clock.seconds = first
    while shuffler.deliveries._not_before[_DIGEST] == first:
        await asyncio.sleep(0.01)
    assert shuffler.deliveries._not_before[_DIGEST] - first == 2 * (first - 1_000_000_000)

    shuffler.analyzer.reachable = True
    shuffler.clock.seconds += 100
    while await shuffler.state() is not BatchState.ERASED:
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_submission_that_comes_while_a_batch_expires_saves_it(shuffler: Shuffler) -> None:
    """What was acknowledged is not destroyed by a decision made without it."""
    await shuffler.submit(2)
    before = await shuffler.spool.get(_DIGEST)
    late = shuffler.envelope()
    await shuffler.collection.submit(_DIGEST, late)
    with pytest.raises(BatchStateError, match="had 2 users when this was decided; it has 3"):
        await shuffler.spool.drop(before, BatchState.EXPIRED)
    shuffler.clock.seconds = float(_CASE.task.deadline)
    await shuffler.deliveries.advance()

    [(manifest, _)] = shuffler.analyzer.delivered
    assert manifest.n_users == 3


async def test_a_key_that_could_not_be_destroyed_is_tried_again(shuffler: Shuffler) -> None:
    """The batch is over in the spool; its key follows."""
    await shuffler.submit(5)
    state = shuffler.rounds._state
    failures = 1

    class Stubborn:
        def __getattr__(self, name: str) -> object:
            return getattr(state, name)

        def destroy(self, name: str) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise OSError
            state.destroy(name)

    shuffler.rounds._state = Stubborn()  # type: ignore[assignment]
    await shuffler.deliveries.advance()
    assert len(shuffler.key_files()) == 1
    await shuffler.deliveries.advance()
    assert shuffler.key_files() == []


async def test_a_key_without_a_batch_is_destroyed_at_the_next_start(shuffler: Shuffler) -> None:
    """A crash between making a key and storing its batch leaves nothing behind."""
    await shuffler.submit(1)
    stray = shuffler.path / f"batch-{'00' * 16}.key"
    stray.touch(mode=0o600)
    shuffler.spool.close()
    await shuffler.start()

    assert not stray.exists()
    assert len(shuffler.key_files()) == 1


async def test_a_lost_key_holds_up_no_other_batch(shuffler: Shuffler) -> None:
    """The shuffler starts; the batch whose key is gone stays as it is."""
    await shuffler.submit(1)
    [key_file] = shuffler.key_files()
    key_file.unlink()
    shuffler.spool.close()
    await shuffler.start()

    assert shuffler.rounds.unfinished() == []
