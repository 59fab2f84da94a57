from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import pytest

from common.crypto.hpke import HpkePrivateKey, SealContext
from common.crypto.hpke_pool import Opened
from common.crypto.merkle import leaves_of
from common.crypto.signing import SignedTask
from common.errors import BudgetError, StorageError
from common.messages.batch import BatchId, BatchManifest
from common.task.task import Task
from deploy.audit.harness.analyzer_core import AnalyzerCore, chunks_of
from deploy.audit.harness.pools import InlinePool
from tests.support.leaves import some_leaves
from tests.support.scrapes import series_of, value


class _FailingTwice(InlinePool):
    """Its workers die two times."""

    left = 2

    def open(
        self, key: HpkePrivateKey, sealed: bytes, sealed_bytes: int, context: SealContext
    ) -> Future[Opened]:
        """Open one chunk; see HpkePool."""
        if self.left:
            self.left -= 1
            raise BrokenProcessPool
        return super().open(key, sealed, sealed_bytes, context)


async def _number(core: AnalyzerCore, name: str, **labels: str) -> float:
    series = series_of(core.process_metrics.metrics)
    return value(series, f"shuffledp_{name}", **labels)


async def test_refused_reports_are_counted_by_cause_at_the_release(analyzer: AnalyzerCore) -> None:
    """Of those that arrived."""
    sealed = analyzer.sealed(50)
    sealed[3] = sealed[4]
    sealed[5] = bytes(60)
    await analyzer.releases.deliver(analyzer.manifest(50), chunks_of(sealed))
    await analyzer.settle()

    assert 100 == await _number(analyzer, "reports_received_total")
    for cause, count in (("repeated", 1), ("unreadable", 1), ("malformed", 0)):
        assert count == await _number(analyzer, "reports_refused_total", cause=cause)


async def test_a_batch_that_is_unusable_is_no_release(analyzer: AnalyzerCore) -> None:
    """Nothing of it could be read; delivered again, it is counted no second time."""
    garbage = [bytes([number]) * 60 for number in range(6)]
    for _ in range(2):
        await analyzer.releases.deliver(analyzer.manifest(3), chunks_of(garbage))
        await analyzer.settle()

    assert 1 == await _number(analyzer, "batches", state="unusable")
    assert 0 == await _number(analyzer, "batches", state="staged")
    assert 1 == await _number(analyzer, "batches_moved_total", state="unusable")
    assert 0 == await _number(analyzer, "releases_total")
    assert 0 == await _number(analyzer, "tasks_open")


async def test_too_many_refusals_quarantine_a_batch(analyzer: AnalyzerCore) -> None:
    """More than a twentieth."""
    sealed = analyzer.sealed(50)
    sealed[:6] = [bytes([number]) * 60 for number in range(6)]
    await analyzer.releases.deliver(analyzer.manifest(50), chunks_of(sealed))
    await analyzer.settle()

    assert 1 == await _number(analyzer, "batches_moved_total", state="quarantined")
    assert 1 == await _number(analyzer, "batches", state="unusable")
    assert 0 == await _number(analyzer, "sentinels_missing_total")
    assert 0 == await _number(analyzer, "reports_refused_total", cause="unreadable")


async def test_a_lost_sentinel_is_counted(analyzer: AnalyzerCore) -> None:
    """Of two that were acknowledged, one came; the shuffler was to keep every report."""
    signed = await analyzer.publish(n_min=3, target_size=8)
    sealed = analyzer.sealed(5)
    there = leaves_of(b"".join(sealed[:2]), analyzer.task.sealed_report_bytes)
    await analyzer.sentinels.register(
        signed.digest(), [there, b"".join(some_leaves(2))], acknowledged=True
    )
    await analyzer.releases.deliver(analyzer.manifest(5), chunks_of(sealed))
    await analyzer.settle()

    assert 1 == await _number(analyzer, "sentinels_missing_total")
    assert 1 == await _number(analyzer, "batches_moved_total", state="quarantined")


async def test_a_release_that_fails_is_counted_each_time(
    analyzer: AnalyzerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it succeeds, and is one release."""
    analyzer.releases._pool = _FailingTwice()
    monkeypatch.setattr("analyzer.release._FIRST_PAUSE", 0.01)
    await analyzer.releases.deliver(analyzer.manifest(50), chunks_of(analyzer.sealed(50)))
    await analyzer.settle()

    assert 2 == await _number(analyzer, "release_failures_total")
    assert 1 == await _number(analyzer, "releases_total")


async def test_tasks_are_open_until_their_deadline(analyzer: AnalyzerCore) -> None:
    """One is published beside the first, and is over sooner."""
    await analyzer.publish(deadline=int(analyzer.clock.now()) + 100)
    assert 2 == await _number(analyzer, "tasks_open")

    analyzer.clock.seconds += 100
    assert 1 == await _number(analyzer, "tasks_open")


async def test_a_task_is_not_open_once_its_batch_has_come(
    analyzer: AnalyzerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its release is still to be tried again; nor after a restart."""
    analyzer.releases._pool = _FailingTwice()
    monkeypatch.setattr("analyzer.release._FIRST_PAUSE", 60.0)
    await analyzer.releases.deliver(analyzer.manifest(50), chunks_of(analyzer.sealed(50)))
    assert 1 == await _number(analyzer, "batches", state="staged")
    assert 0 == await _number(analyzer, "tasks_open")

    await analyzer.stop()
    await analyzer.start()
    assert 1 == await _number(analyzer, "batches", state="staged")
    assert 0 == await _number(analyzer, "tasks_open")


async def _released(core: AnalyzerCore, population: str, budget: float) -> SignedTask:
    signed = await core.publish(
        n_min=50, target_size=50, population=population, budget_epsilon=budget
    )
    await core.release(50, signed)
    return signed


async def test_the_share_of_a_budget_is_that_of_the_population_that_spent_most(
    analyzer: AnalyzerCore,
) -> None:
    """The composed ε over the smallest budget that its people were promised, all at one δ."""
    await _released(analyzer, "guests", 10.0)
    alone = await _number(analyzer, "budget_spent_ratio")
    await _released(analyzer, "staff", 2.0)
    await _released(analyzer, "staff", 10.0)
    ledger = await analyzer.store.ledger(0)

    assert ledger[0].composed_epsilon / 10 == pytest.approx(alone)
    spent = ledger[2].composed_epsilon / 2
    assert 0.4 < spent < 1
    assert spent == pytest.approx(await _number(analyzer, "budget_spent_ratio"))

    await analyzer.stop()
    await analyzer.start()
    await analyzer.releases.measure_budgets()
    assert spent == pytest.approx(await _number(analyzer, "budget_spent_ratio"))
    assert 3 == await _number(analyzer, "ledger_entries")


async def test_a_batch_that_the_budget_refuses_is_unusable_once(analyzer: AnalyzerCore) -> None:
    """However often it is delivered."""
    signed = await analyzer.publish(
        n_min=50, target_size=50, population="other", budget_epsilon=0.73
    )
    second = await analyzer.publish(
        n_min=50, target_size=50, population="other", budget_epsilon=0.73
    )
    await analyzer.release(50, signed)
    manifest = analyzer.manifest(50, batch=BatchId(b"2" * 16), signed=second)
    for _ in range(2):
        with pytest.raises(BudgetError):
            await analyzer.releases.deliver(manifest, chunks_of(analyzer.sealed(50, second)))

    assert 1 == await _number(analyzer, "batches", state="unusable")
    assert 1 == await _number(analyzer, "batches_moved_total", state="unusable")


async def _spent(core: AnalyzerCore) -> float | None:
    series = series_of(core.process_metrics.metrics)
    return series.get(("shuffledp_budget_spent_ratio", ()))


async def test_the_share_of_a_budget_is_measured_at_the_budgets_own_delta(
    analyzer: AnalyzerCore,
) -> None:
    """A release at a generous δ does not let it fall."""
    alone: float | None = None
    published = []
    for epsilon, delta in ((1.1, 1e-6), (5.0, 1e-2)):
        signed = await analyzer.publish(
            n_min=50,
            target_size=50,
            population="staff",
            budget_epsilon=epsilon,
            budget_delta=delta,
        )
        published.append(signed)
        alone = await _spent(analyzer)
        await analyzer.release(50, signed)
    both = await _spent(analyzer)
    first = published[0]
    task = Task.from_bytes(first.task_bytes)
    at_the_first = await analyzer.spending.compose(task, 50, 0, first.digest())

    assert alone == pytest.approx(0.63, abs=0.01)
    assert at_the_first / 1.1 == both
    assert both == pytest.approx(0.938, abs=0.01)


async def test_the_share_of_a_budget_is_not_there_until_it_is_known(analyzer: AnalyzerCore) -> None:
    """Of all populations: with nothing released it is then 0; some alone could be too little."""
    assert await _spent(analyzer) is None
    await analyzer.releases.measure_budgets()
    assert 0 == await _spent(analyzer)

    await _released(analyzer, "staff", 2.0)
    share = await _spent(analyzer)
    await analyzer.stop()
    await analyzer.start()
    assert await _spent(analyzer) is None
    await _released(analyzer, "guests", 50.0)
    assert share == await _spent(analyzer)


async def test_a_budget_that_cannot_be_measured_is_no_failed_release(
    analyzer: AnalyzerCore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The result is released, and the log says what did not work."""

    async def fail(_: str) -> tuple[str, float]:
        raise StorageError("the disk failed")

    monkeypatch.setattr(analyzer.spending, "share", fail)
    await _released(analyzer, "staff", 2.0)
    said = caplog.messages

    assert 1 == await _number(analyzer, "releases_total")
    assert 0 == await _number(analyzer, "release_failures_total")
    assert "budgets not measured" in said
    assert "batch not released yet" not in said


async def test_a_lost_sentinel_is_counted_once_though_the_disk_was_full(
    analyzer: AnalyzerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is given up at the third try."""
    give_up, left = analyzer.store.give_up, 2

    async def fail_twice(manifest: BatchManifest, failure: str) -> None:
        nonlocal left
        if left:
            left -= 1
            raise StorageError("the disk is full")
        await give_up(manifest, failure)

    monkeypatch.setattr(analyzer.store, "give_up", fail_twice)
    monkeypatch.setattr("analyzer.release._FIRST_PAUSE", 0.01)
    signed = await analyzer.publish(n_min=3, target_size=8)
    sealed = analyzer.sealed(5)
    await analyzer.sentinels.register(
        signed.digest(), [b"".join(some_leaves(2))], acknowledged=True
    )
    await analyzer.releases.deliver(analyzer.manifest(5), chunks_of(sealed))
    await analyzer.settle()

    assert 2 == await _number(analyzer, "release_failures_total")
    assert 1 == await _number(analyzer, "sentinels_missing_total")
