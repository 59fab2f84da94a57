import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.errors import StorageError
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime.metrics import WINDOW, ProcessMetrics
from shuffledp.shuffler.metrics import METRICS, StoreMetrics
from tests.support.scrapes import series_of, value
from tests.support.shuffler_core import CASE, DIGEST, Shuffler


def _number(shuffler: Shuffler, name: str, **labels: str) -> float:
    return value(series_of(shuffler.process_metrics.metrics), f"shuffledp_{name}", **labels)


async def test_a_quarantined_batch_does_not_wait_for_delivery(shuffler: Shuffler) -> None:
    """Its users are not released either."""
    await shuffler.submit(5)
    shuffler.analyzer.refuse_with = "INVALID_ARGUMENT"
    await shuffler.advance()
    shuffler.clock.seconds += 100

    assert 1 == _number(shuffler, "batches", state="quarantined")
    assert 0 == _number(shuffler, "oldest_undelivered_seconds")
    assert 0 == _number(shuffler, "users_released_total")


async def test_an_undeliverable_batch_is_stuck_until_it_is_delivered(shuffler: Shuffler) -> None:
    """The age counts from the closing."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    shuffler.clock.seconds += 1000
    assert 1 == _number(shuffler, "batches_stuck")
    assert 1000 == _number(shuffler, "oldest_undelivered_seconds")

    shuffler.analyzer.reachable = True
    await shuffler.advance()
    assert 0 == _number(shuffler, "batches_stuck")
    assert 0 == _number(shuffler, "oldest_undelivered_seconds")
    assert 5 == _number(shuffler, "users_released_total")
    for left in ("closed", "permuted", "delivered"):
        assert 0 == _number(shuffler, "batches", state=left)


@pytest.mark.parametrize(("moved_on", "age"), [(10.0, 60.0), (4_000_000_000.0, 1_000_000_060.0)])
async def test_after_a_restart_waiting_counts_from_the_start_or_the_deadline(
    shuffler: Shuffler, moved_on: float, age: float
) -> None:
    """The time of closing is not on the disk."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    shuffler.store.close()
    shuffler.clock.seconds += moved_on
    await shuffler.start()
    shuffler.clock.seconds += 60

    assert age == _number(shuffler, "oldest_undelivered_seconds")
    assert 1 == _number(shuffler, "batches", state="permuted")


@pytest.mark.parametrize("users", [2, 5])
async def test_refusals_are_counted_once_despite_disk_failures(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch, users: int
) -> None:
    """The disk fails before and after the state is recorded."""
    await shuffler.submit(users)
    batch_id = (await shuffler.store.get(DIGEST)).batch_id
    shuffler.refusals.count(batch_id, [Outcome.MALFORMED])
    shuffler.clock.seconds = float(CASE.task.deadline)

    async def fail(*_: object) -> None:
        raise StorageError("the disk failed")

    for name in ("set_state", "clean_up"):
        with monkeypatch.context() as patch:
            patch.setattr(shuffler.store, name, fail)
            await shuffler.advance()
    await shuffler.advance()

    assert 1 == _number(shuffler, "submissions_refused_total", cause="malformed")


async def test_a_batch_dropped_before_it_is_permuted_is_counted_once(shuffler: Shuffler) -> None:
    """Its users and refusals, as those of a batch that is dropped later."""
    await shuffler.submit(5)
    stored = await shuffler.store.get(DIGEST)
    shuffler.refusals.count(stored.batch_id, [Outcome.MALFORMED])
    await shuffler.store.set_state(stored, BatchState.CLOSED)
    await shuffler.collection.drop(DIGEST)
    await shuffler.advance()

    assert 5 == _number(shuffler, "users_collected_total")
    assert 1 == _number(shuffler, "submissions_refused_total", cause="malformed")


def test_the_slowest_transaction_shows_in_the_next_window() -> None:
    """Single transactions do not show, nor do those of an earlier window."""
    clock = ManualClock(0.0)
    process_metrics = ProcessMetrics("shuffler", METRICS, clock)
    store = StoreMetrics(process_metrics)

    def shown(name: str) -> float | None:
        return process_metrics.metrics.registry.get_sample_value(name)

    assert shown("shuffledp_store_connected") is None
    store.record_connection(connected=True)
    for seconds in (0.5, 2.0, 1.0):
        store.record_commit(seconds)
    assert (1, 0) == (shown("shuffledp_store_connected"), shown("shuffledp_store_commit_seconds"))
    clock.seconds = WINDOW
    store.record_commit(0.25)
    store.record_connection(connected=False)
    assert (0, 2) == (shown("shuffledp_store_connected"), shown("shuffledp_store_commit_seconds"))
    clock.seconds = 2 * WINDOW
    assert 0.25 == shown("shuffledp_store_commit_seconds")
    clock.seconds = 3 * WINDOW
    assert 0 == shown("shuffledp_store_commit_seconds")
