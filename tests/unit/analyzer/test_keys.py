import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from analyzer.storage.task_table import TaskLine
from common.crypto.hpke import key_id
from common.crypto.key_ring import DAY
from common.errors import UnusableBatchError
from common.task.task import Task
from deploy.audit.harness.analyzer_core import chunks_of
from tests.support.analyzer_core import BATCH, AnalyzerCore
from tests.support.keys import SCHEDULE

_MANY = 50


@pytest.fixture
async def analyzer(tmp_path: Path) -> AsyncIterator[AnalyzerCore]:
    """A started analyzer without a task."""
    started = AnalyzerCore(tmp_path / "state")
    await started.start()
    yield started
    await started.stop()


async def _rotate(analyzer: AnalyzerCore, days: float) -> None:
    """Let days pass, and rotate as the running service does."""
    for _ in range(round(days)):
        analyzer.clock.seconds += DAY
        needed = await analyzer.registry.needed_keys(SCHEDULE.retention)
        analyzer.keys.reports.rotate(analyzer.clock.now(), needed)


async def test_a_batch_sealed_to_an_expired_key_is_released(analyzer: AnalyzerCore) -> None:
    """Half a year later, by a new process; then the key is destroyed."""
    old = Task.from_bytes((await analyzer.publish()).task_bytes).analyzer_key
    signed, sealed = analyzer.signed, analyzer.sealed(_MANY)
    await _rotate(analyzer, 183)
    assert old != analyzer.keys.reports.public_key().raw
    seconds = analyzer.clock.seconds
    await analyzer.restart()
    analyzer.clock.seconds = seconds

    await analyzer.releases.deliver(analyzer.manifest(_MANY, signed=signed), chunks_of(sealed))
    await analyzer.settle()
    assert _MANY == (await analyzer.releases.result(signed.digest())).n_users
    await _rotate(analyzer, 1)
    assert "destroyed" in {entry.state.value for entry in analyzer.keys.reports.ring.entries}


async def test_a_batch_whose_key_is_destroyed_is_unusable(analyzer: AnalyzerCore) -> None:
    """
    It came a month and more after the task's deadline, when the key was destroyed: the operator is
    told why, nothing is opened or charged, and the sealed reports stay.
    """
    deadline = int(analyzer.clock.now() + 2 * DAY)
    signed = await analyzer.publish(deadline=deadline)
    sealed, manifest = analyzer.sealed(_MANY), analyzer.manifest(_MANY)
    await _rotate(analyzer, 125)
    await analyzer.releases.deliver(manifest, chunks_of(sealed))
    await analyzer.settle()

    with pytest.raises(UnusableBatchError, match=r"analyzer_key, .* has expired and is destroyed"):
        await analyzer.releases.result(signed.digest())
    assert 0 == analyzer.pool.opened
    assert [] == await analyzer.releases.ledger(0)
    assert b"".join(sealed[:3]) == await analyzer.store.chunk(BATCH, 0)


async def test_a_key_is_needed_while_a_batch_is_staged_or_expected(analyzer: AnalyzerCore) -> None:
    """Until the keep time after the deadline; a staged batch needs it without limit."""
    deadline = int(analyzer.clock.now() + 2 * DAY)
    signed = await analyzer.publish(deadline=deadline)
    task = Task.from_bytes(signed.task_bytes)
    key = key_id(task.suite, task.analyzer_key)

    async def needed() -> set[bytes]:
        found = await analyzer.registry.needed_keys(SCHEDULE.retention)
        assert found is not None
        return set(found)

    assert {key} == await needed()
    analyzer.clock.seconds = deadline + SCHEDULE.retention - 1
    assert {key} == await needed()
    analyzer.clock.seconds = deadline + SCHEDULE.retention
    assert set() == await needed()

    await analyzer.store.begin_batch(analyzer.manifest(_MANY))
    assert set() == await needed()
    await analyzer.stage(analyzer.manifest(_MANY))
    assert {key} == await needed()
    await analyzer.releases.resume()
    await analyzer.settle()
    assert set() == await needed()


async def test_no_key_is_destroyed_while_a_task_is_unreadable(analyzer: AnalyzerCore) -> None:
    """Its batch may arrive under any key; new keys are made nevertheless."""
    signed = await analyzer.publish(deadline=int(analyzer.clock.now() + 2 * DAY))
    task = Task.from_bytes(signed.task_bytes)
    unreadable = analyzer.keys.identity.sign(b"of a later version")
    line = dataclasses.replace(TaskLine.of(task), deadline=int(analyzer.clock.now() + 200 * DAY))
    await analyzer.store.add_task(unreadable, line)
    await _rotate(analyzer, 125)

    states = {entry.state.value for entry in analyzer.keys.reports.ring.entries}
    assert {"active", "expired"} <= states
    assert "destroyed" not in states
    analyzer.keys.reports.private_key(task.suite, task.analyzer_key, whose="analyzer_key")
