"""
A crash of the analyzer at any boundary of a decision on a quarantined batch changes nothing.

Boundaries are around transactions, changes of key files, and parts of every stage.
"""

from pathlib import Path
from typing import Final

import pytest

from shuffledp.common.errors import PeerError, UnusableBatchError
from shuffledp.common.messages.ledger_entry import Decision, DecisionEntry
from tests.support.analyzer_core import BATCH, AnalyzerCore
from tests.support.analyzer_party import AnalyzerParty, Surroundings
from tests.support.faults import Boundary, Crash, Life
from tests.support.ledger_entries import releases

_USERS: Final = 20
_JUNK: Final = 4


class _Party(AnalyzerParty, AnalyzerCore):
    """An analyzer that may crash, with small tasks and batches."""


async def _restart(analyzer: _Party) -> None:
    """Restart the analyzer after a crash, even if it crashes while it starts."""
    while analyzer.life.over.is_set():
        await analyzer.end()
        try:
            await analyzer.start()
        except Crash:
            continue


async def _settle(analyzer: _Party) -> None:
    """Wait until the batch is released or dropped, and erased, whatever crashes."""
    await analyzer.settle()
    while analyzer.life.over.is_set():
        await _restart(analyzer)
        await analyzer.settle()


async def _run(path: Path, decision: Decision, crash: int | None) -> list[Boundary]:
    """Decide on a quarantined batch with a crash at a boundary; return the boundaries crossed."""
    path.mkdir()
    around = Surroundings(path)
    analyzer, operator = _Party(around), Life("stranger", around.faults)
    await analyzer.start()
    await AnalyzerCore.publish(analyzer)
    sealed = analyzer.sealed(_USERS)
    sealed[:_JUNK] = [bytes([number]) * 60 for number in range(_JUNK)]
    await analyzer.deliver_parts(analyzer.manifest(_USERS), sealed)
    await analyzer.settle()
    digest, faults = analyzer.signed.digest(), around.faults
    faults.crossed.clear()
    faults.countdown = crash
    decided: list[DecisionEntry] = []
    while not decided:
        try:
            decided.append(
                await around.network.call(
                    *(operator, analyzer.life, "decide"),
                    lambda: analyzer.releases.decide(digest, decision, "looked into"),
                )
            )
        except PeerError:
            await _restart(analyzer)
    await _settle(analyzer)
    boundaries = list(faults.crossed)
    entries = await analyzer.store.ledger(0)
    files = [str(one.relative_to(path)) for one in path.rglob("*") if one.is_file()]
    try:
        if decision == "drop":
            with pytest.raises(UnusableBatchError, match=r"note: looked into$"):
                await analyzer.result()
        else:
            result = await analyzer.result()
            assert (_USERS, _JUNK) == (result.n_users, result.refused["unreadable"])
            assert 1 == len(result.warnings)
    finally:
        await analyzer.end()

    assert (crash is None) == (not faults.crashes), "the crash was not reached"
    assert decided == [one for one in entries if isinstance(one, DecisionEntry)]
    assert [BATCH] * (decision == "release") == [one.batch_id for one in releases(entries)]
    assert not [name for name in files if "batch-" in name or "/blocks/" in name]
    return boundaries


@pytest.mark.parametrize(
    "step", [pytest.param(8, id="an eighth"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("decision", ["release", "drop"])
async def test_a_crash_at_any_boundary_of_a_decision_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decision: Decision, step: int
) -> None:
    """One decision, one release or none, and no key or block of the batch left."""
    monkeypatch.setattr("shuffledp.analyzer.release.retry_pause", lambda _: 0.0)
    boundaries = await _run(tmp_path / "no crash", decision, None)
    acts = {boundary.act for boundary in boundaries}
    assert {"decide", "kept batches", "destroy key"} <= acts
    assert ("release" in acts) == ("count" in acts) == (decision == "release")
    for number in range(0, len(boundaries), step):
        await _run(tmp_path / f"crash {number}", decision, number)
