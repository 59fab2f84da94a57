"""An operator's list of tasks, also where this version cannot read one of them."""

import logging

import pytest

from analyzer.overview import Overview
from common.errors import TaskError
from common.task_summary_wire import MAX_LISTED_TASKS
from tests.support.analyzer_core import AnalyzerCore


async def test_an_unreadable_task_is_left_out_of_the_list_and_named_in_the_log(
    analyzer: AnalyzerCore, caplog: pytest.LogCaptureFixture
) -> None:
    """One old task does not take the others with it."""
    old = analyzer.keys.identity.sign(b"of an older version")
    await analyzer.store.add_task(old)
    overview = Overview(analyzer.store, analyzer.clock)
    with caplog.at_level(logging.WARNING, "shuffledp"):
        listed = await overview.tasks(None)

    assert [analyzer.signed.digest()] == [summary.task_digest for summary in listed]
    [record] = [one for one in caplog.records if one.message == "task cannot be read"]
    assert {"task_digest": old.digest().hex()} == getattr(record, "fields", None)
    with pytest.raises(TaskError):
        await overview.describe(old.digest())


async def test_many_unreadable_tasks_do_not_end_the_list(analyzer: AnalyzerCore) -> None:
    """An empty answer would be taken for its end."""
    signed = [analyzer.keys.identity.sign(b"old %d" % number) for number in range(5_000)]
    below = [old for old in signed if old.digest() < analyzer.signed.digest()]
    for old in below[: MAX_LISTED_TASKS + 1]:
        await analyzer.store.add_task(old)
    listed = await Overview(analyzer.store, analyzer.clock).tasks(None)

    assert [analyzer.signed.digest()] == [summary.task_digest for summary in listed]
