"""An operator's list of tasks, also where this version cannot read one of them."""

import logging
import sqlite3
from contextlib import closing

import pytest

from analyzer.registry import TaskListing
from common.errors import TaskError
from common.messages.batch import TaskState
from tests.support.analyzer_core import AnalyzerCore


def _change(analyzer: AnalyzerCore, statement: str) -> None:
    """Change the analyzer's file as another version might have left it."""
    with closing(sqlite3.connect(analyzer.path / "analyzer.sqlite")) as connection, connection:
        connection.execute(statement)


async def test_an_unreadable_task_is_logged_and_not_listed(
    analyzer: AnalyzerCore, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are listed."""
    old = analyzer.keys.identity.sign(b"of an older version")
    await analyzer.store.add_task(old, None)
    overview = TaskListing(analyzer.store, analyzer.clock)
    with caplog.at_level(logging.WARNING, "shuffledp"):
        await overview.add_lines()
    listed = await overview.tasks(None)

    assert [analyzer.signed.digest()] == [summary.task_digest for summary in listed]
    [record] = [one for one in caplog.records if one.message == "task cannot be read"]
    assert {"task_digest": old.digest().hex()} == getattr(record, "fields", None)
    with pytest.raises(TaskError, match=r"cannot read its task [0-9a-f]{12}: "):
        await overview.describe(old.digest())


async def test_listing_parses_no_task(analyzer: AnalyzerCore) -> None:
    """A task's line holds every listed field."""
    _change(analyzer, "UPDATE tasks SET task = x'00'")
    [summary] = await TaskListing(analyzer.store, analyzer.clock).tasks(None)
    task = analyzer.task

    assert analyzer.signed.digest() == summary.task_digest
    assert TaskState.OPEN is summary.state
    assert (task.protocol, task.domain_size, task.population) == (
        summary.protocol,
        summary.domain_size,
        summary.population,
    )
    assert (task.n_min, task.target_size, task.deadline) == (
        summary.n_min,
        summary.target_size,
        summary.deadline,
    )
