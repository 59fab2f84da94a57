import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import pytest

from shuffledp.analyzer.storage import ledger, quarantine
from shuffledp.audit.harness.party_cores import part_header
from shuffledp.common import errors
from shuffledp.common.messages import inclusion_proof
from shuffledp.common.messages.batch import MAX_REASON_CHARACTERS, BatchId, BatchManifest, TaskState
from shuffledp.common.messages.ledger_entry import Decision, DecisionEntry, verify
from shuffledp.common.task_digest import TaskDigest
from tests.support.analyzer_core import BATCH, AnalyzerCore
from tests.support.ledger_entries import releases

_USERS = 50
_JUNK = 6
_DECISIONS: tuple[Decision, Decision] = ("release", "drop")


async def _state(core: AnalyzerCore) -> TaskState:
    tasks = core.registry.tasks
    [summary] = [one for one in await tasks(None) if one.task_digest == core.signed.digest()]
    return summary.state


@pytest.fixture
async def core(analyzer: AnalyzerCore) -> AnalyzerCore:
    """An analyzer with a released batch and a quarantined one of 6 unreadable reports of 100."""
    await analyzer.release(_USERS, analyzer.signed)
    await analyzer.publish()
    sealed = analyzer.sealed(_USERS)
    sealed[:_JUNK] = [bytes([number]) * 60 for number in range(_JUNK)]
    await analyzer.deliver(_USERS, sealed)
    return analyzer


async def test_a_quarantined_batch_waits_for_a_decision(core: AnalyzerCore) -> None:
    """Until its end date its reports and key are kept, across restarts; nothing is charged."""
    for _ in range(2):
        assert TaskState.QUARANTINED is await _state(core)
        with pytest.raises(errors.SuspectBatchError, match=r"_share is 0\.05; .* batch release"):
            await core.result()
        await core.restart()
        await core.releases.resume()
        await core.settle()
        core.clock.seconds += 1000 * 86400
        needed = await core.registry.needed_keys(0.0)

        assert needed
        assert b"" != core.blocks.open(BATCH).get("arrived/0")
    assert 1 == len(await core.store.ledger(0))


async def test_a_released_batch_is_estimated_with_a_warning(core: AnalyzerCore) -> None:
    """The refused reports cost honest users as ever; the decision precedes the charge."""
    entry = await core.releases.decide(core.signed.digest(), "release", "junk, <seen>")
    await core.settle()
    result = await core.result()
    entries = await core.store.ledger(0)

    entry.verify(core.keys.identity.public_identity())
    assert [1, 2, 3] == [one.entry for one in entries]
    assert entry == entries[1]
    assert (_JUNK, _USERS) == (releases(entries)[1].n_refused, result.n_users)
    assert result.refused["unreadable"] == _JUNK
    assert result.guarantees[0].epsilon == releases(entries)[1].epsilon
    [warning] = result.warnings
    assert "failed a check: 6 of the batch's 100 reports were refused" in warning
    assert warning.endswith("the operator's note: junk, <seen>")
    assert await core.store.run(ledger.check) == verify(entries)
    assert TaskState.RELEASED is await _state(core)
    assert not list(core.path.rglob("batch-*"))


async def test_a_dropped_batch_is_erased(core: AnalyzerCore) -> None:
    """The task is unusable with the check and the note, takes no batch, and needs no key."""
    await core.releases.decide(core.signed.digest(), "drop", "the shuffler lies")
    await core.settle()

    assert TaskState.UNUSABLE is await _state(core)
    with pytest.raises(
        errors.UnusableBatchError, match=r"share is 0\.05; .* note: the shuffler lies$"
    ):
        await core.result()
    assert not list(core.path.rglob("batch-*"))
    assert not [path for path in core.path.rglob("blocks/*/*") if path.is_file()]
    core.clock.seconds += 1000 * 86400
    assert set() == await core.registry.needed_keys(0.0)
    assert 2 == len(await core.store.ledger(0))


@pytest.mark.parametrize("decision", _DECISIONS)
async def test_a_decision_is_made_once(core: AnalyzerCore, decision: Decision) -> None:
    """Again, with another note and after a restart, it changes nothing; its opposite is refused."""
    digest = core.signed.digest()
    first = await core.releases.decide(digest, decision, "first")
    for _ in range(2):
        assert first == await core.releases.decide(digest, decision, "second")
        await core.settle()
        state, entries = await _state(core), await core.store.ledger(0)
        [opposite] = set(_DECISIONS) - {decision}
        with pytest.raises(errors.BatchStateError, match=f"decided before to {decision} its batch"):
            await core.releases.decide(digest, opposite, "no")
        assert (state, entries) == (await _state(core), await core.store.ledger(0))
        await core.restart()
        await core.releases.resume()

    assert "first" == first.note
    assert 1 == sum(isinstance(entry, DecisionEntry) for entry in entries)


async def test_a_decided_release_is_resumed_after_a_restart(core: AnalyzerCore) -> None:
    """The decision is durable before the batch is estimated."""
    await core.releases.decide(core.signed.digest(), "release", "looked into")
    await core.restart()
    assert TaskState.STAGED is await _state(core)
    with pytest.raises(
        errors.BatchStateError, match=f"yet; .* see .* show {core.signed.digest().hex()}$"
    ):
        await core.result()
    await core.releases.resume()
    await core.settle()

    assert _USERS == (await core.result()).n_users


async def test_a_decision_in_the_middle_of_an_earlier_look_is_not_overlooked(
    core: AnalyzerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for a staged batch, and finds none yet."""
    digest, staged = core.signed.digest(), core.store.staged

    async def decided_meanwhile() -> list[BatchManifest]:
        monkeypatch.setattr(core.store, "staged", staged)
        found = await staged()
        await core.releases.decide(digest, "release", "looked into")
        return found

    monkeypatch.setattr(core.store, "staged", decided_meanwhile)
    core.releases._start_release(core.manifest(_USERS))
    await core.settle()

    assert _USERS == (await core.result()).n_users


async def test_only_a_quarantined_batch_is_released_and_no_result_dropped(
    core: AnalyzerCore,
) -> None:
    """An unknown, an open and a released task are refused; so is an unreadable one's release."""
    with pytest.raises(errors.UnknownTaskError):
        await core.releases.decide(TaskDigest(bytes(32)), "release", "why")
    unreadable = await core.publish()
    await core.release(_USERS, unreadable, spoiled=2 * _USERS)
    await core.publish()
    states = {one.task_digest: one.state.value for one in await core.registry.tasks(None)}
    for digest, state in states.items():
        allowed = {"quarantined": _DECISIONS, "unusable": ("drop",)}.get(state, ())
        for decision in set(_DECISIONS).difference(allowed):
            with pytest.raises(errors.BatchStateError, match=f"needs a.* the task is {state}$"):
                await core.releases.decide(digest, decision, "why")
    assert {"open", "released", "unusable", "quarantined"} == set(states.values())


def _nothing_left(core: AnalyzerCore) -> bool:
    """Return whether staging keys and blocks of all batches are gone."""
    blocks = [path for path in core.path.rglob("blocks/*/*") if path.is_file()]
    return [] == [*core.path.rglob("batch-*"), *blocks]


async def _unreadable(core: AnalyzerCore) -> None:
    """No report can be counted."""
    await core.release(_USERS, await core.publish(), spoiled=2 * _USERS)


async def _too_few(core: AnalyzerCore) -> None:
    """Fewer than n_min users remain besides a sentinel."""
    signed = await core.publish(n_min=_USERS, target_size=60)
    sealed = core.sealed(_USERS)
    sentinel = b"".join(map(inclusion_proof.leaf, sealed[:2]))
    await core.registry.register_sentinels(signed.digest(), [sentinel], acknowledged=True)
    await core.deliver(_USERS, sealed)


async def _too_dear(core: AnalyzerCore) -> None:
    """It is released from quarantine, at a cost beyond the budget."""
    await core.publish(n_min=_USERS, target_size=_USERS, budget_epsilon=1.9)
    await core.deliver(_USERS, [*core.sealed(_USERS)[:10], *(bytes([n]) * 60 for n in range(90))])
    await core.releases.decide(core.signed.digest(), "release", "looked into")
    await core.settle()


async def _quarantined(core: AnalyzerCore) -> None:
    """Too many reports are refused."""
    await core.publish()
    sealed = core.sealed(_USERS)
    sealed[:_JUNK] = [bytes([number]) * 60 for number in range(_JUNK)]
    await core.deliver(_USERS, sealed)


async def _staged(core: AnalyzerCore) -> None:
    """The batch is staged, and not released yet."""
    await core.publish()
    await core.stage(core.manifest(_USERS))


async def _partial(core: AnalyzerCore) -> None:
    """Not all parts have arrived, and the deadline has passed."""
    await core.publish()
    await core.receive(core.manifest(_USERS), core.sealed(_USERS))
    core.clock.seconds = float(core.task.deadline)


_KEPT: Final[dict[Callable[[AnalyzerCore], Awaitable[None]], TaskState]] = {
    _unreadable: TaskState.UNUSABLE,
    _too_few: TaskState.UNUSABLE,
    _too_dear: TaskState.UNUSABLE,
    _quarantined: TaskState.QUARANTINED,
    _staged: TaskState.STAGED,
    _partial: TaskState.OVERDUE,
}


@pytest.mark.parametrize("by_command", [True, False], ids=["by command", "at its end date"])
@pytest.mark.parametrize("keep", _KEPT)
async def test_every_batch_without_a_result_can_be_erased(
    tmp_path: Path, keep: Callable[[AnalyzerCore], Awaitable[None]], *, by_command: bool
) -> None:
    """Keys and files are gone, also after a restart; the ledger has the signed decision."""
    core = AnalyzerCore(tmp_path)
    await core.start()
    await keep(core)
    digest = core.signed.digest()
    assert _KEPT[keep] is await _state(core)
    assert not _nothing_left(core)
    if by_command:
        await core.releases.decide(digest, "drop", "not needed")
    else:
        await core.releases.drop_ended(core.task.deadline)
        assert _KEPT[keep] is await _state(core)
        await core.releases.drop_ended(core.task.deadline + 1)
        await core.releases.drop_ended(core.task.deadline + 1)
    await core.settle()

    for _ in range(2):
        assert TaskState.UNUSABLE is await _state(core)
        assert _nothing_left(core)
        with pytest.raises(errors.UnusableBatchError, match="the operator dropped the batch"):
            await core.result()
        core.clock.seconds += 1000 * 86400
        assert set() == await core.registry.needed_keys(0.0)
        entry = (await core.store.ledger(0))[-1]
        assert isinstance(entry, DecisionEntry)
        assert "drop" == entry.decision
        await core.restart()
        await core.releases.resume()
        await core.settle()
    await core.store.run(ledger.check)
    if keep is _partial:
        with pytest.raises(errors.ConflictError, match="the operator dropped the batch"):
            await core.staging.begin(core.manifest(_USERS), 2)
    await core.stop()


async def test_a_batch_that_cannot_be_dropped_delays_no_other(
    core: AnalyzerCore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At their end date; it is logged. A reason too long for the ledger is cut."""
    first = core.signed.digest()
    await core.store.mark_unusable(core.manifest(_USERS), 2 * MAX_REASON_CHARACTERS * "x")
    await core.publish()
    await core.stage(core.manifest(_USERS, batch=BatchId(bytes(16))))
    second, decide = core.signed.digest(), quarantine.decide

    def refuse_first(
        connection: sqlite3.Connection, digest: TaskDigest, *given: Any, **more: Any
    ) -> Any:
        if digest == min(first, second):
            raise errors.LedgerError("broken")
        return decide(connection, digest, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(quarantine, "decide", refuse_first)
        await core.releases.drop_ended(core.task.deadline + 1000)
    assert "batch not dropped yet" in caplog.text
    assert 2 == len(await core.store.ledger(0))
    await core.releases.drop_ended(core.task.deadline + 1000)
    await core.settle()

    assert _nothing_left(core)
    decided = [entry for entry in await core.store.ledger(0) if isinstance(entry, DecisionEntry)]
    reasons = {entry.task_digest: entry.reason for entry in decided}
    assert MAX_REASON_CHARACTERS * "x" == reasons[first]


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("accept_delivery", errors.ConflictError),
        ("chunk", errors.ConflictError),
        ("add_part", errors.ConflictError),
        ("fix_salt", errors.StorageError),
        ("finish_delivery", errors.ConflictError),
        ("_mark_unusable", None),
        ("release", None),
    ],
)
async def test_a_batch_that_is_dropped_meanwhile_stays_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: type[Exception] | None
) -> None:
    """Whichever step comes next: nothing is released, charged or left, and the note is kept."""
    core = AnalyzerCore(tmp_path)
    await core.start()
    await core.publish()
    run = core.store.run
    digest, sealed = core.signed.digest(), core.sealed(_USERS)
    core.clock.seconds = float(core.task.deadline)  # before it, an unfinished delivery is kept
    monkeypatch.setattr("shuffledp.analyzer.release.retry_pause", lambda _: 0.0)
    if step == "_mark_unusable":
        sealed[:_JUNK] = [bytes([number]) * 60 for number in range(_JUNK)]

    async def drop() -> None:
        monkeypatch.setattr(core.store, "run", run)
        await core.releases.decide(digest, "drop", "too late")
        if error is not None:  # else the release waits for this
            await core.settle()

    async def dropped_before(work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if work.__name__ == step:
            await drop()
        return await run(work, *given, **named)

    async def chunks() -> AsyncIterator[bytes]:
        if step == "chunk":
            await drop()
        yield b"".join(sealed)

    monkeypatch.setattr(core.store, "run", dropped_before)
    with pytest.raises(error) if error else nullcontext():
        await core.staging.begin(core.manifest(_USERS), 1)
        await core.staging.receive(part_header(digest, 0, sealed), chunks())
        await core.staging.finish_delivery(digest)
    await core.settle()

    assert TaskState.UNUSABLE is await _state(core)
    assert _nothing_left(core)
    assert ["drop"] == [getattr(entry, "decision", "") for entry in await core.store.ledger(0)]
    with pytest.raises(errors.UnusableBatchError, match=r"the operator dropped .* note: too late$"):
        await core.result()
    with pytest.raises(errors.BatchStateError, match="decided before to drop"):
        await core.releases.decide(digest, "release", "no")
    await core.stop()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE decisions SET note = 'other'", "at entry 2: it does not match its hash"),
        ("DELETE FROM decisions", "entry 3 follows entry 1"),
    ],
)
async def test_a_decision_cannot_be_changed_unnoticed(
    core: AnalyzerCore, statement: str, message: str
) -> None:
    """The database refuses it; without its triggers, the chain is broken."""
    await core.releases.decide(core.signed.digest(), "release", "looked into")
    await core.settle()
    connection = sqlite3.connect(core.path / "analyzer.sqlite")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)
    with connection:
        connection.execute("DROP TRIGGER decisions_are_never_changed")
        connection.execute("DROP TRIGGER decisions_are_never_removed")
        connection.execute(statement)
    connection.close()

    with pytest.raises(errors.LedgerError, match=message):
        await core.store.run(ledger.check)
