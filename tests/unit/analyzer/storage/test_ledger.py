import sqlite3
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest

import shuffledp.analyzer.server
from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.analyzer.storage import ledger
from shuffledp.common.errors import LedgerError
from shuffledp.common.messages.ledger_entry import (
    FIRST_PREVIOUS_HASH,
    DecisionEntry,
    LedgerEntry,
    verify,
)
from tests.support.analyzer_core import AnalyzerCore
from tests.support.ledger_entries import releases


@pytest.fixture
async def core(core: AnalyzerCore) -> AnalyzerCore:
    """An analyzer that has released three batches."""
    for _ in range(3):
        await core.release(5, await core.publish(population="staff", budget_epsilon=20.0))
    return core


def _tamper(core: AnalyzerCore, *statements: str) -> None:
    """Change the file as its owner can: the triggers are only a fence."""
    connection = sqlite3.connect(core.path / "analyzer.sqlite")
    with connection:
        connection.execute("DROP TRIGGER ledger_is_never_changed")
        connection.execute("DROP TRIGGER ledger_is_never_shortened")
        for statement in statements:
            connection.execute(statement)
    connection.close()


async def test_every_release_is_chained_to_the_previous_one(core: AnalyzerCore) -> None:
    """The first follows 32 zero bytes; each states what its population has spent."""
    entries = releases(await core.store.ledger(0))

    assert [1, 2, 3] == [entry.entry for entry in entries]
    assert FIRST_PREVIOUS_HASH == entries[0].previous_hash
    assert await core.store.run(ledger.check) == verify(entries)
    assert {"staff"} == {entry.population for entry in entries}
    composed = [entry.composed_epsilon for entry in entries]
    assert composed == sorted(set(composed))
    assert composed[0] <= entries[0].epsilon * (1 + 1e-9)


async def test_the_database_has_no_other_columns(core: AnalyzerCore) -> None:
    """The columns hold tasks, batches, results and the ledger, and nothing of a single user."""
    query = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_xinfo(t.name) c"
    found = await core.store.run(lambda connection: connection.execute(query).fetchall())

    assert {
        "schema_version": "version readable_from",
        "tasks": "task_digest task signature",
        "task_lines": "task_digest protocol domain_size population n_min target_size deadline",
        "sentinels": "task_digest position leaves acknowledged",
        "batches": (
            "task_digest batch_id n_users n_reports staged failure n_parts salt by_length "
            "quarantined n_discarded"
        ),
        "parts": "batch_id part n_reports content_hash",
        "results": "task_digest cells result",
        "commitments": "task_digest commitment",
        "ledger": " ".join(field.name for field in fields(LedgerEntry)),
        "decisions": " ".join(field.name for field in fields(DecisionEntry)),
        "log_entries": "position entry",
        "log_checkpoints": "size note",
        "sqlite_sequence": "name seq",
    } == {table: " ".join(name for owner, name in found if owner == table) for table, _ in found}


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (("UPDATE ledger SET epsilon = 0.001 WHERE entry = 2",), "at entry 2: it does not match"),
        (("UPDATE ledger SET epsilon = 'little' WHERE entry = 2",), "entry 2: epsilon is no"),
        (
            ("UPDATE ledger SET population = 'others' WHERE entry = 1",),
            "at entry 1: it does not match",
        ),
        (("DELETE FROM ledger WHERE entry = 2",), "entry 3 follows entry 1"),
        (("DELETE FROM ledger WHERE entry = 1",), "entry 2 follows entry 0"),
        (("DELETE FROM ledger WHERE entry = 3",), "lacks the release of task"),
        (
            (
                "UPDATE ledger SET entry = 9 WHERE entry = 2",
                "UPDATE ledger SET entry = 2 WHERE entry = 3",
                "UPDATE ledger SET entry = 3 WHERE entry = 9",
            ),
            "broken at entry 2",
        ),
        (("ALTER TABLE ledger DROP COLUMN population",), "columns are entry, task_digest"),
    ],
)
async def test_a_broken_chain_is_detected(
    core: AnalyzerCore, statements: tuple[str, ...], message: str
) -> None:
    """The error names the first entry that was changed, removed or moved."""
    _tamper(core, *statements)
    with pytest.raises(LedgerError, match=message):
        await core.store.run(ledger.check)


async def test_an_analyzer_with_a_broken_ledger_does_not_start(tmp_path: Path) -> None:
    """The same analyzer starts with an intact ledger."""
    settings = AnalyzerSettings(state_directory=tmp_path, plaintext=True, opening_processes=1)
    core = AnalyzerCore(tmp_path)
    await core.start()
    await core.release(3, await core.publish())
    await core.stop()
    await (await shuffledp.analyzer.server.start(settings)).stop()

    _tamper(core, "UPDATE ledger SET n_users = 30")
    with pytest.raises(LedgerError, match="broken at entry 1"):
        await shuffledp.analyzer.server.start(settings)


@pytest.mark.parametrize("statement", ["UPDATE ledger SET epsilon = 0", "DELETE FROM ledger"])
async def test_the_ledger_is_append_only(core: AnalyzerCore, statement: str) -> None:
    """The database refuses to change or delete entries."""
    connection = sqlite3.connect(core.path / "analyzer.sqlite")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)
    connection.close()


def test_decisions_of_an_earlier_version_are_kept() -> None:
    """And stay append-only; a batch that was to be released may be dropped."""
    row = [7, b"t" * 32, b"b" * 16, "release", "why", "note", 5, b"s", b"p", b"e"]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(ledger.DECISIONS)
        insert = "INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        connection.execute(insert, row)
        connection.executescript(ledger.DECIDED_TWICE)
        assert [tuple(row)] == connection.execute("SELECT * FROM decisions").fetchall()
        connection.execute(insert, [8, *row[1:3], "drop", *row[4:]])
        for statement in ("UPDATE decisions SET note = 'x'", "DELETE FROM decisions"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)
