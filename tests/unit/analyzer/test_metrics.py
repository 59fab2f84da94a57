import pytest

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import StorageError
from shuffledp.common.messages.batch import BatchManifest
from tests.support.analyzer_core import AnalyzerCore
from tests.support.leaves import some_leaves
from tests.support.ledger_entries import releases
from tests.support.scrapes import series_of, value


async def _number(core: AnalyzerCore, name: str, **labels: str) -> float:
    series = series_of(core.process_metrics.metrics)
    return value(series, f"shuffledp_{name}", **labels)


async def test_refused_reports_are_counted_by_cause(analyzer: AnalyzerCore) -> None:
    """They are counted when the batch is released."""
    sealed = analyzer.sealed(50)
    sealed[3] = sealed[4]
    sealed[5] = bytes(60)
    await analyzer.deliver(50, sealed)

    assert 100 == await _number(analyzer, "reports_received_total")
    for cause, count in (("repeated", 1), ("unreadable", 1), ("malformed", 0)):
        assert count == await _number(analyzer, "reports_refused_total", cause=cause)


async def test_an_unusable_batch_is_not_a_release(analyzer: AnalyzerCore) -> None:
    """Delivered again, it is not counted again."""
    garbage = [bytes([number]) * 60 for number in range(6)]
    for _ in range(2):
        await analyzer.deliver(3, garbage)

    assert 1 == await _number(analyzer, "batches", state="unusable")
    assert 0 == await _number(analyzer, "batches", state="staged")
    assert 1 == await _number(analyzer, "batches_moved_total", state="unusable")
    assert 0 == await _number(analyzer, "releases_total")
    assert 0 == await _number(analyzer, "tasks_open")


async def test_too_many_refusals_quarantine_a_batch(analyzer: AnalyzerCore) -> None:
    """The limit is a twentieth of the reports."""
    sealed = analyzer.sealed(50)
    sealed[:6] = [bytes([number]) * 60 for number in range(6)]
    await analyzer.deliver(50, sealed)

    assert 1 == await _number(analyzer, "batches_moved_total", state="quarantined")
    assert 1 == await _number(analyzer, "batches", state="unusable")
    assert 0 == await _number(analyzer, "sentinels_missing_total")
    assert 0 == await _number(analyzer, "reports_refused_total", cause="unreadable")
    await analyzer.releases.decide(analyzer.signed.digest(), "release", "looked into")
    await analyzer.settle()

    assert 1 == await _number(analyzer, "batches", state="released")
    assert 0 == await _number(analyzer, "batches", state="unusable")
    assert 6 == await _number(analyzer, "reports_refused_total", cause="unreadable")
    assert 2 == await _number(analyzer, "ledger_entries")


async def test_dropping_an_unusable_batch_does_not_move_it_again(analyzer: AnalyzerCore) -> None:
    """It stays unusable; the ledger has one more entry."""
    await analyzer.deliver(50, [number.to_bytes(4) * 15 for number in range(100)])
    await analyzer.releases.decide(analyzer.signed.digest(), "drop", "junk")
    await analyzer.settle()

    moved = [await _number(analyzer, "batches_moved_total", state="unusable")]
    moved += [await _number(analyzer, "batches", state="unusable")]
    assert [1, 1, 1] == [*moved, await _number(analyzer, "ledger_entries")]


async def test_tasks_are_open_until_their_deadline_or_their_batch(analyzer: AnalyzerCore) -> None:
    """Of three tasks one ends sooner, and one has a staged batch; a restart changes nothing."""
    await analyzer.publish()
    await analyzer.stage(analyzer.manifest(50))
    await analyzer.publish(deadline=int(analyzer.clock.now()) + 100)
    await analyzer.restart()
    assert 2 == await _number(analyzer, "tasks_open")
    assert 1 == await _number(analyzer, "batches", state="staged")

    analyzer.clock.seconds += 100
    assert 1 == await _number(analyzer, "tasks_open")


async def _released(core: AnalyzerCore, population: str, budget: float) -> SignedTask:
    signed = await core.publish(
        n_min=50, target_size=50, population=population, budget_epsilon=budget
    )
    await core.release(50, signed)
    return signed


async def _spent(core: AnalyzerCore) -> float | None:
    series = series_of(core.process_metrics.metrics)
    return series.get(("shuffledp_budget_spent_ratio", ()))


async def test_the_largest_budget_share_is_shown_once_all_are_measured(
    analyzer: AnalyzerCore,
) -> None:
    """A share is the composed ε over the smallest budget; a part could show too little."""
    assert await _spent(analyzer) is None
    await analyzer.releases.measure_budgets()
    assert 0 == await _spent(analyzer)
    await _released(analyzer, "guests", 10.0)
    alone = await _spent(analyzer)
    await _released(analyzer, "staff", 2.0)
    await _released(analyzer, "staff", 10.0)
    ledger = releases(await analyzer.store.ledger(0))

    assert pytest.approx(alone) == ledger[0].composed_epsilon / 10
    spent = ledger[2].composed_epsilon / 2
    assert 0.4 < spent < 1
    assert pytest.approx(spent) == await _spent(analyzer)
    await analyzer.restart()
    assert await _spent(analyzer) is None
    await _released(analyzer, "others", 50.0)
    assert pytest.approx(spent) == await _spent(analyzer)
    assert 4 == await _number(analyzer, "ledger_entries")


async def test_a_failed_measurement_of_budgets_does_not_fail_the_release(
    analyzer: AnalyzerCore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged."""

    async def fail(_: str) -> tuple[str, float]:
        raise StorageError("the disk failed")

    monkeypatch.setattr(analyzer.budgets, "share", fail)
    await _released(analyzer, "staff", 2.0)
    said = caplog.messages

    assert 1 == await _number(analyzer, "releases_total")
    assert 0 == await _number(analyzer, "release_failures_total")
    assert "budgets not measured" in said
    assert "batch not released yet" not in said


async def test_a_missing_sentinel_is_counted_once_despite_disk_failures(
    analyzer: AnalyzerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch becomes unusable at the third try."""
    mark_unusable, left = analyzer.store.mark_unusable, 2

    async def fail_twice(manifest: BatchManifest, failure: str, *, quarantined: bool) -> None:
        nonlocal left
        if left:
            left -= 1
            raise StorageError("the disk is full")
        await mark_unusable(manifest, failure, quarantined=quarantined)

    monkeypatch.setattr(analyzer.store, "mark_unusable", fail_twice)
    monkeypatch.setattr("shuffledp.common.runtime.clock._MIN_PAUSE", 0.01)
    signed = await analyzer.publish(n_min=3, target_size=8)
    sealed = analyzer.sealed(5)
    await analyzer.registry.register_sentinels(
        signed.digest(), [b"".join(some_leaves(2))], acknowledged=True
    )
    await analyzer.deliver(5, sealed)

    assert 2 == await _number(analyzer, "release_failures_total")
    assert 1 == await _number(analyzer, "sentinels_missing_total")
