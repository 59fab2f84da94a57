"""The analyzer's log: what it appends, which checkpoints it serves, what it says of witnesses."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import pytest

from shuffledp.analyzer.metrics import ReleaseMetrics
from shuffledp.analyzer.storage import log_table, task_table
from shuffledp.analyzer.task_log import TaskLog
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import PeerError, ProofError
from shuffledp.common.task.task import Task
from shuffledp.common.transparency.checkpoint import (
    NoteKey,
    NoteSignature,
    SignatureType,
    SignedCheckpoint,
)
from shuffledp.common.transparency.checkpoint import log_key as key_of
from shuffledp.common.transparency.log import EntryKind, LogEntry
from shuffledp.common.transparency.merkle import Path, leaf_hash, verify_consistency
from shuffledp.common.transparency.witness import Witness
from shuffledp.common.transparency.witness_policy import WEEK_SECONDS
from tests.support.analyzer_core import AnalyzerCore
from tests.support.scrapes import series_of, value
from tests.support.tasks import published
from tests.support.transparency import empty

_KEY: Final = LogEntry(EntryKind.ANALYZER_KEY, SigningIdentity(bytes(32)).public_identity().raw)


class _Witness:
    """A witness of a core's log, in memory."""

    def __init__(self, core: AnalyzerCore, number: int) -> None:
        identity = SigningIdentity(bytes([number]) * 32)
        log = key_of(core.keys.identity.public_identity())
        self._core = core
        self.own = Witness(name=f"witness/{number}", identity=identity, log=log)
        self.key = NoteKey(self.own.name, SignatureType.COSIGNATURE, identity.public_identity())
        self.last = empty(log.name)
        self.away = False
        self.calls = 0

    async def add_checkpoint(
        self, old_size: int, consistency: Path, signed: SignedCheckpoint
    ) -> tuple[int, NoteSignature | None]:
        """Cosign unless it is away."""
        self.calls += 1
        if self.away:
            raise PeerError("the witness does not answer")
        line = self.own.cosign(
            self.last,
            signed,
            old_size=old_size,
            proof=partial(verify_consistency, path=consistency),
            seconds=int(self._core.clock.now()),
        )
        if line is not None:
            self.last = signed.checkpoint
        return self.last.size, line


@asynccontextmanager
async def _running(core: AnalyzerCore, *witnesses: _Witness) -> AsyncIterator[TaskLog]:
    """Start a log with one key, and its calls to witnesses."""
    log = TaskLog(
        store=core.store, identity=core.keys.identity, witnesses=witnesses, clock=core.clock
    )
    await log.resume([_KEY])
    running = asyncio.create_task(log.run())
    try:
        yield log
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _counts(log: TaskLog, witnesses: Sequence[_Witness]) -> dict[int, int]:
    """Count the cosignatures of each served checkpoint, by its size."""
    return {
        one.checkpoint.size: sum(one.signed_at(witness.key) is not None for witness in witnesses)
        for one in log.copy.checkpoints
    }


async def test_a_task_is_logged_with_its_registration_or_not_at_all(core: AnalyzerCore) -> None:
    """If the entry cannot be written, neither is the task."""
    case = published()

    def failing(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE log_entries")
        task_table.add(connection, case.signed, Task.from_bytes(case.signed.task_bytes))

    with pytest.raises(sqlite3.OperationalError):
        await core.store.run(failing)
    assert await core.store.run(task_table.find, case.signed.digest()) is None
    signed = await core.publish()
    entry = leaf_hash(LogEntry.of_task(signed).to_bytes())
    assert [entry] == await core.store.run(log_table.leaves_after, 0)


async def test_a_task_without_an_entry_is_appended_once_at_start(core: AnalyzerCore) -> None:
    """As those that an earlier version published; what is in the log keeps its place and head."""
    signed = [await core.publish() for _ in range(3)]
    await core.store.run(
        lambda connection: connection.execute("DELETE FROM log_entries WHERE position = 2")
    )
    async with _running(core) as log:
        entries = [LogEntry.of_task(signed[0]), LogEntry.of_task(signed[1]), _KEY]
        leaves = [leaf_hash(one.to_bytes()) for one in (*entries, LogEntry.of_task(signed[2]))]
        assert leaves == log.copy.leaves(0, 9)
        heads = log.copy.checkpoints
    await core.restart()
    async with _running(core) as log:
        assert (leaves, heads) == (log.copy.leaves(0, 9), log.copy.checkpoints)
        assert {} == await log.publish()
        assert heads == log.copy.checkpoints


async def test_the_checkpoint_with_more_cosignatures_is_kept(
    core: AnalyzerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a newer one has as many, or a week is over."""
    monkeypatch.setattr("shuffledp.common.runtime.clock._MIN_PAUSE", 0.05)
    witnesses = [_Witness(core, number) for number in (1, 2)]
    first, second = witnesses
    async with _running(core, *witnesses) as log:
        await core.publish()
        assert {"witness/1": "", "witness/2": ""} == await log.publish()
        assert {2: 2} == _counts(log, witnesses)
        second.away = True
        for size in (3, 4):
            await core.publish()
            problems = await log.publish()
            assert ("", "the witness does not answer") == tuple(problems.values())
            assert {2: 2, size: 1} == _counts(log, witnesses)
    await core.restart()
    async with _running(core, *witnesses) as log:
        await log.publish()
        assert {2: 2, 4: 1} == _counts(log, witnesses)
        core.clock.seconds += WEEK_SECONDS + 1
        await core.publish()
        await log.publish()
        assert {5: 1} == _counts(log, witnesses)
        second.away = False
        async with asyncio.timeout(20):  # it is retried
            while {5: 2} != _counts(log, witnesses):
                await asyncio.sleep(0.05)
    async with _running(core, *witnesses) as log:  # cosigned again: each line is replaced
        await log.publish()
        assert 1 + len(witnesses) == len(log.copy.checkpoints[-1].signatures)
    assert first.last == second.last


async def test_a_witness_may_start_after_the_analyzer(
    core: AnalyzerCore, caplog: pytest.LogCaptureFixture
) -> None:
    """One that does not answer is logged once; after ten minutes, once more, as a warning."""
    caplog.set_level(logging.INFO)
    witness = _Witness(core, 1)
    witness.away = True
    async with _running(core, witness) as log:
        for _ in range(2):
            await core.publish()
            await log.publish()
        levels = [one.levelname for one in caplog.records if one.msg == "witness does not cosign"]
        assert ["INFO"] == levels
        core.clock.seconds += 600
        for _ in range(2):
            await core.publish()
            await log.publish()
        assert witness.calls >= 4
    levels = [one.levelname for one in caplog.records if one.msg == "witness does not cosign"]
    assert ["INFO", "WARNING"] == levels


async def test_the_silence_of_the_slowest_witness_is_measured(core: AnalyzerCore) -> None:
    """Since its last cosignature, after a restart too, or since the start if none is known."""
    witnesses = first, second = [_Witness(core, number) for number in (1, 2)]
    second.away = True

    def silence(log: TaskLog) -> float:
        ReleaseMetrics(core.process_metrics).watch_witnesses(log.cosigned)
        name = "shuffledp_oldest_cosignature_seconds"
        return value(series_of(core.process_metrics.metrics), name)

    async with _running(core, *witnesses) as log:
        await log.publish()
        core.clock.seconds += 100
        assert 100 == silence(log)
    async with _running(core, *witnesses) as log:
        assert 100 == silence(log)  # the first's: since when the second is silent is forgotten
        await log.publish()
        assert 0 == silence(log)
        second.away, first.away = False, True
        core.clock.seconds += 5
        await core.publish()
        await log.publish()
        assert 5 == silence(log)
    assert [] == core.log.cosigned()


class _Liar(_Witness):
    """A witness that gives other answers."""

    answers: tuple[tuple[int, NoteSignature | None], ...] = ()

    async def add_checkpoint(
        self,
        old_size: int,  # as a witness's
        consistency: Path,
        signed: SignedCheckpoint,
    ) -> tuple[int, NoteSignature | None]:
        """Give the next answer, or another witness's cosignature."""
        self.calls += 1
        if not self.answers:
            return await _Witness(self._core, 2).add_checkpoint(0, (), signed)
        return self.answers[(self.calls - 1) % len(self.answers)]


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ((), "is by another key"),
        (((1, None), (0, None)), "from one size after another"),
        (((99, None),), "of size 99; this log has 2: its database is an old copy"),
    ],
)
async def test_a_witness_that_lies_is_named(
    core: AnalyzerCore, answers: tuple[tuple[int, None], ...], problem: str
) -> None:
    """And its answers are not served."""
    witness = _Liar(core, 1)
    witness.answers = answers
    await core.publish()
    async with _running(core, witness) as log:
        [said] = (await log.publish()).values()
        assert problem in said
        assert {2: 0} == _counts(log, [witness])


async def test_a_damaged_log_stops_the_start(core: AnalyzerCore) -> None:
    """A stored head that is not of the stored entries."""
    await core.publish()
    async with _running(core):
        pass
    await core.store.run(
        lambda connection: connection.execute(
            "UPDATE log_entries SET entry = x'00' WHERE position = 1"
        )
    )
    with pytest.raises(ProofError, match="not a head of its entries"):
        async with _running(core):
            pass


async def test_a_renewed_identity_is_another_log_of_the_same_entries(core: AnalyzerCore) -> None:
    """The checkpoints of the earlier identity are served no more, however many cosigned them."""
    await core.publish()
    async with _running(core, _Witness(core, 1)) as log:
        await log.publish()
    core.keys = replace(core.keys, identity=SigningIdentity(bytes([7]) * 32))
    witness = _Witness(core, 1)
    async with _running(core, witness) as log:
        await log.publish()
        log.copy.checkpoints[0].check_log(witness.own.log)
        assert {2: 1} == _counts(log, [witness])
