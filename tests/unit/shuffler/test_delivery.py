import asyncio
import threading
from pathlib import Path

import pytest

from common.errors import BatchStateError, SettingsError
from common.messages.batch import BatchState
from common.task.task import Task
from tests.support.shuffler_core import CASE, DIGEST, Shuffler


async def test_a_full_batch_is_delivered_once_and_erased(shuffler: Shuffler) -> None:
    """At the target size: all sealed reports, no more, and the batch's key is gone."""
    await shuffler.submit(5)
    await shuffler.deliveries.advance()
    await shuffler.deliveries.advance()

    [(manifest, blob)] = shuffler.analyzer.delivered
    assert (5, 10) == (manifest.n_users, manifest.n_reports)
    assert 10 * CASE.task.sealed_report_bytes == len(blob)
    assert BatchState.ERASED is await shuffler.state()
    assert shuffler.key_files() == []


async def test_below_n_min_nothing_is_ever_released(shuffler: Shuffler) -> None:
    """At the deadline the batch expires and is destroyed."""
    await shuffler.submit(2)
    shuffler.clock.seconds = float(CASE.task.deadline)
    await shuffler.deliveries.advance()

    assert BatchState.EXPIRED is await shuffler.state()
    assert shuffler.analyzer.delivered == []
    assert shuffler.key_files() == []


async def test_a_shuffler_may_insist_on_more_users_than_the_task(tmp_path: Path) -> None:
    """minimum_batch raises n_min, and is what the status shows."""
    strict = Shuffler(tmp_path, minimum_batch=6)
    await strict.start()
    await strict.submit(5)
    await strict.deliveries.advance()

    assert BatchState.COLLECTING is await strict.state()
    assert (await strict.collection.status(DIGEST)).n_min == 6
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


async def test_a_batch_that_cannot_move_on_pauses_and_recovers(shuffler: Shuffler) -> None:
    """Whatever goes wrong, it is tried again later, and later each time."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    running = asyncio.create_task(shuffler.deliveries.run())
    while not shuffler.deliveries._not_before:
        await asyncio.sleep(0.01)
    first = shuffler.deliveries._not_before[DIGEST]
    assert first > shuffler.clock.now()

    shuffler.clock.seconds = first
    while shuffler.deliveries._not_before[DIGEST] == first:
        await asyncio.sleep(0.01)
    assert shuffler.deliveries._not_before[DIGEST] - first == 2 * (first - 1_000_000_000)

    shuffler.analyzer.reachable = True
    shuffler.clock.seconds += 100
    while await shuffler.state() is not BatchState.ERASED:
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_submission_that_comes_while_a_batch_expires_saves_it(shuffler: Shuffler) -> None:
    """What was acknowledged is not destroyed by a decision made without it."""
    await shuffler.submit(2)
    before = await shuffler.spool.get(DIGEST)
    late = shuffler.envelope()
    await shuffler.collection.submit(DIGEST, late)
    with pytest.raises(BatchStateError, match="had 2 users when it was read; it has 3"):
        await shuffler.spool.drop(before, BatchState.EXPIRED)
    shuffler.clock.seconds = float(CASE.task.deadline)
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


async def test_a_start_on_another_database_destroys_nothing(shuffler: Shuffler) -> None:
    """Lost, older, or not mounted: it is refused, and put back everything goes on."""
    await shuffler.submit(CASE.task.target_size)
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
    await shuffler.deliveries.advance()

    assert BatchState.ERASED is await shuffler.state()


async def test_an_order_is_not_swept_away_for_another_database(shuffler: Shuffler) -> None:
    """The same where the batch was permuted."""
    await shuffler.submit(CASE.task.target_size)
    shuffler.analyzer.reachable = False
    await shuffler.deliveries.advance()
    assert BatchState.PERMUTED is await shuffler.state()
    shuffler.spool.close()
    database = shuffler.path / "spool.sqlite"
    aside = database.rename(shuffler.path / "aside")
    with pytest.raises(SettingsError):
        await shuffler.start()
    shuffler.spool.close()
    aside.rename(database)
    shuffler.analyzer.reachable = True
    await shuffler.start()
    await shuffler.deliveries.advance()

    assert BatchState.ERASED is await shuffler.state()


async def test_a_batch_whose_key_was_never_made_gets_one(shuffler: Shuffler) -> None:
    """A crash between storing an empty batch and making its key costs nothing."""
    await shuffler.collection.fetch_task(DIGEST)
    [key_file] = shuffler.key_files()
    key_file.unlink()
    shuffler.spool.close()
    await shuffler.start()
    await shuffler.submit(CASE.task.target_size)
    await shuffler.deliveries.advance()

    assert BatchState.ERASED is await shuffler.state()


async def test_a_lost_key_holds_up_no_other_batch(shuffler: Shuffler) -> None:
    """The shuffler starts; the batch whose key is gone stays as it is."""
    await shuffler.submit(1)
    [key_file] = shuffler.key_files()
    key_file.unlink()
    shuffler.spool.close()
    await shuffler.start()

    assert shuffler.rounds.unfinished() == []
    for _ in range(3):
        with pytest.raises(BatchStateError, match="is missing"):
            await shuffler.collection.fetch_task(DIGEST)
    assert shuffler.key_files() == []


async def test_a_key_that_could_be_read_once_mended_stops_the_start(shuffler: Shuffler) -> None:
    """Left alone, its batch would wait unnoticed; mended, it goes on."""
    await shuffler.submit(CASE.task.target_size)
    [key_file] = shuffler.key_files()
    key_file.chmod(0o640)
    shuffler.spool.close()
    with pytest.raises(SettingsError, match=f"{key_file.name} has mode 0640"):
        await shuffler.start()
    shuffler.spool.close()
    key_file.chmod(0o600)
    await shuffler.start()
    await shuffler.deliveries.advance()

    assert BatchState.ERASED is await shuffler.state()


async def test_a_round_that_is_over_is_read_once(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all who ask at once, and not in the event loop: a task may have two megabytes."""
    await shuffler.submit(CASE.task.target_size)
    await shuffler.deliveries.advance()
    shuffler.spool.close()
    await shuffler.start()
    read: list[str] = []
    from_bytes = Task.from_bytes

    def counted(task_bytes: bytes) -> Task:
        read.append(threading.current_thread().name)
        return from_bytes(task_bytes)

    monkeypatch.setattr(Task, "from_bytes", counted)
    assert {BatchState.ERASED} == set(await asyncio.gather(*[shuffler.state() for _ in range(20)]))
    with pytest.raises(BatchStateError, match="is over"):
        await shuffler.collection.submit(DIGEST, shuffler.envelope())
    assert BatchState.ERASED is await shuffler.state()

    assert 1 == len(read)
    assert threading.main_thread().name not in read


async def test_rounds_that_are_over_need_not_be_held(shuffler: Shuffler) -> None:
    """After a restart the spool still knows them; the analyzer is not asked."""
    await shuffler.submit(CASE.task.target_size)
    await shuffler.deliveries.advance()
    shuffler.analyzer.reachable = False

    for _ in range(2):
        assert CASE.signed == await shuffler.collection.fetch_task(DIGEST)
        assert BatchState.ERASED is await shuffler.state()
        with pytest.raises(BatchStateError, match="is over"):
            await shuffler.collection.submit(DIGEST, shuffler.envelope())
        shuffler.spool.close()
        await shuffler.start()
