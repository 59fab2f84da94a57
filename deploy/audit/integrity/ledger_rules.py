"""Whether a result and its charge are one, and whether an analyzer starts on an altered ledger."""

import asyncio
import dataclasses
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from analyzer.server import start
from analyzer.settings import AnalyzerSettings
from common.errors import LedgerError, ShuffleDpError
from common.messages.ledger_entry import LedgerEntry
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Outcome
from deploy.audit.integrity.analyzer_core import AnalyzerCore
from deploy.audit.integrity.rehearsal import quietly
from deploy.audit.integrity.small_batch import SmallBatch, small_task
from deploy.audit.stand_ins.still_clock import StillClock

_LOOK: Final = 0.005
_PATIENCE: Final = 30.0
"""Seconds."""
_FULL: Final = (
    "CREATE TRIGGER disk_is_full BEFORE INSERT ON {} BEGIN SELECT RAISE(ABORT, 'full'); END"
)
_MAY_CHANGE: Final = "DROP TRIGGER IF EXISTS ledger_is_never_changed"
_MAY_SHORTEN: Final = "DROP TRIGGER IF EXISTS ledger_is_never_shortened"
_OTHERWISE: Final = MappingProxyType(
    {
        "entry": "entry + 7",
        "task_digest": "zeroblob(32)",
        "batch_id": "zeroblob(16)",
        "population": "population || 'x'",
        "n_users": "n_users + 1",
        "n_refused": "n_refused + 1",
        "coalition": "'network'",
        "epsilon": "epsilon / 2",
        "delta": "delta / 2",
        "theorem": "theorem || '.'",
        "composed_epsilon": "composed_epsilon / 2",
        "previous_hash": "entry_hash",
        "entry_hash": "previous_hash",
    }
)
"""Of each column of an entry something else that could stand there."""


def ledger_rules(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Let writing fail, then alter what was charged; whatever task is audited."""
    del audited
    checks = Checks()
    with quietly():
        asyncio.run(_play(checks, rng))
    return Outcome(
        findings=(
            checks.finding(
                scenario="analyzer-ledger",
                title="A charge that cannot be written, and one that was altered",
                heading="correctness",
                sentence=(
                    "No result was kept whose charge could not be written, and nothing was "
                    "charged for a result that could not. No entry could be changed or deleted "
                    "while the ledger was as it is made. An analyzer did not start on a ledger "
                    "of which one column had been changed, whichever; nor where an entry had been "
                    "replaced, with the hash that belongs to it; nor where the last was missing."
                ),
                subject="small tasks with shuffled randomized response",
                advice="Compare the ledger with what you know to have been released.",
            ),
        )
    )


async def _play(checks: Checks, rng: np.random.Generator) -> None:
    with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        path = Path(folder) / "analyzer"
        async with AnalyzerCore.started(path, StillClock(), rng) as core:
            await _written_together(checks, core, rng)
            await (await SmallBatch.of(core, small_task(), rng)).result(core)
            first, *_ = await core.store.ledger(0)
        for what in ("UPDATE ledger SET n_users = n_users + 1", "DELETE FROM ledger"):
            checks.must(
                "no entry of the ledger can be changed or deleted as any other row can",
                not _is_done(path, what),
            )
        for column, value in _OTHERWISE.items():
            statement = f"UPDATE ledger SET {column} = {value} WHERE entry = 1"  # noqa: S608  # constants
            checks.must(
                f"no analyzer starts on a ledger that was altered, in its {column}",
                not await _starts_after(path, _MAY_CHANGE, statement),
            )
        checks.must(
            "no analyzer starts on a ledger of which an entry was replaced, with its hash",
            not await _starts_after(path, _MAY_CHANGE, _replacing(first)),
        )
        checks.must(
            "no analyzer starts on a ledger that lacks the last release",
            not await _starts_after(path, _MAY_SHORTEN, "DELETE FROM ledger WHERE entry = 2"),
        )


def _replacing(entry: LedgerEntry) -> str:
    """Halve the figure of an entry, and give it the hash that goes with it."""
    other = dataclasses.replace(entry, epsilon=entry.epsilon / 2)
    return (
        f"UPDATE ledger SET epsilon = {other.epsilon!r}, "  # noqa: S608  # of an entry just written
        f"entry_hash = X'{other.expected_hash().hex()}' WHERE entry = {entry.entry}"
    )


async def _starts_after(path: Path, *statements: str) -> bool:
    """Say whether an analyzer starts on a copy of another's files, once it was changed."""
    with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        beside = Path(folder) / "copy"  # of the key beside its directory too
        shutil.copytree(path.parent, beside)
        _run(beside / path.name, *statements)
        return await _starts(beside / path.name)


async def _written_together(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    await (await SmallBatch.of(core, small_task(), rng)).result(core)
    for table in ("ledger", "results"):
        batch = await SmallBatch.of(core, small_task(), rng)
        _run(core.path, _FULL.format(table))
        before = core.metrics.failures
        await batch.deliver(core)
        await _failed(core, batch, before)
        result = await core.store.result(batch.manifest.task_digest)
        charged = [entry.task_digest for entry in await core.store.ledger(0)]
        checks.must("nothing is released that is not charged", result is None)
        checks.must(
            "nothing is charged that is not released",
            batch.manifest.task_digest not in charged,
        )
        await core.releases.stop()
        _run(core.path, "DROP TRIGGER disk_is_full")
    checks.must("the ledger holds what was released, and nothing else", await _is_whole(core))


async def _failed(core: AnalyzerCore, batch: SmallBatch, before: int) -> None:
    """Wait until one more release has failed than before; or has not, which it should."""
    digest = batch.manifest.task_digest
    async with asyncio.timeout(_PATIENCE):
        while True:
            if core.metrics.failures > before or await core.store.result(digest) is not None:
                return
            await asyncio.sleep(_LOOK)


async def _is_whole(core: AnalyzerCore) -> bool:
    try:
        head = await core.store.check_ledger()
    except LedgerError:
        return False
    return head.entry == 1


def _run(path: Path, *statements: str) -> None:
    """Change the analyzer's file behind its back."""
    with closing(sqlite3.connect(path / "analyzer.sqlite")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def _is_done(path: Path, statement: str) -> bool:
    """Say whether a copy of the analyzer's file lets itself be changed."""
    with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        beside = Path(folder) / path.name
        shutil.copytree(path, beside)
        try:
            _run(beside, statement)
        except sqlite3.DatabaseError as error:
            return "append-only" not in str(error)
    return True


async def _starts(path: Path) -> bool:
    settings = AnalyzerSettings(state_directory=path, plaintext=True, opening_processes=1)
    try:
        service = await start(settings)
    except LedgerError:
        return False
    except ShuffleDpError:  # of another cause: the ledger was not what it looked at
        return True
    await service.stop()
    return True
