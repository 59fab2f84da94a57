"""What an operator reads of a task: only what this task promises, and does."""

import dataclasses
import io
import math

import pytest
from rich.console import Console

from common.messages.batch import BatchState, BatchStatus
from common.messages.task_summary import TaskState
from common.task.shuffler_spec import KEEP_SUM, ShufflerSpec
from common.task.task import Task
from deploy.tasks import task_view
from tests.support.tasks import published
from tests.support.wire_parsers import _summary

_SENTINELS = "an operator's sentinels included; n_min must hold without them"


def _printed(console: Console) -> str:
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]  # a StringIO


def _console(width: int = 200) -> Console:
    return Console(file=io.StringIO(), width=width)


def _local() -> Task:
    return published(
        protocol="ldp-oue", buckets=0, dummies_per_user=0, assumed_honest_fraction=0.9
    ).task


def test_a_shuffler_that_drops_reports_is_said_to() -> None:
    """How many it keeps decides the accuracy."""
    shuffler = ShufflerSpec(law="binomial", keep_weight=KEEP_SUM // 2, trials=200, most=200)
    sampling = published(
        protocol="sbin",
        buckets=0,
        dummies_per_user=0,
        local_epsilon=math.inf,
        budget_epsilon=10.0,
        shuffler=shuffler,
    ).task

    assert "permutes" == dict(task_view.parameter_rows(published().task))["shuffler"]
    assert (
        "permutes, keeps each report with probability 0.5 and drops the others, adds dummies: "
        "binomial"
    ) == dict(task_view.parameter_rows(sampling))["shuffler"]


def test_where_nobody_adds_dummies_there_are_none() -> None:
    """A law of nothing says nothing; one that adds some is named."""
    none, some = _local(), published().task

    assert "none" == dict(task_view.parameter_rows(none))["dummies by users"]
    assert "fixed, 1 a user on average" == dict(task_view.parameter_rows(some))["dummies by users"]


def test_the_claim_is_said_to_be_more_than_is_computed() -> None:
    """Two figures for one promise are explained; a claim of the local epsilon has no room."""
    words = "a little more than the one that is computed"

    assert words in task_view.promise_as_text(published().task)
    assert words not in task_view.promise_as_text(_local())


@pytest.mark.parametrize(
    ("task", "shown"),
    [(_local(), "optimized-unary"), (published().task, "local-hashing into 13 buckets")],
)
def test_buckets_are_named_where_the_mechanism_hashes(task: Task, shown: str) -> None:
    """The two answers of each bit of a unary encoding are none."""
    assert shown == dict(task_view.parameter_rows(task))["mechanism"]


def test_a_task_without_a_shuffler_s_help_promises_without_anybody_else() -> None:
    """Its δ is 0, and no user is counted on."""
    told = task_view.promise_as_text(_local())

    assert "at delta 0 against the analyzer, even if nobody else is honest" in told
    assert "users are honest" not in told


@pytest.mark.parametrize(
    ("population", "shown"),
    [("", "\nIts release may cost"), ("staff", "\nAll releases to this population together may")],
)
def test_a_population_is_named_where_there_is_one(population: str, shown: str) -> None:
    """A task that stands alone has a budget all the same."""
    assert shown in task_view.promise_as_text(published(population=population).task)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (TaskState.OPEN, "open: no batch has come to the analyzer yet"),
        (TaskState.OVERDUE, "it expired, cannot be delivered, or is on its way"),
        (TaskState.UNUSABLE, "unusable: its batch is never released"),
    ],
)
def test_a_state_says_no_more_than_the_analyzer_knows(state: TaskState, words: str) -> None:
    """A batch that was refused for its budget was never read; one that is late may still come."""
    console, published_task = _console(), published()
    summary = _summary(state)
    task_view.show(summary.task_digest, published_task.task, summary, console)

    assert words in _printed(console)
    assert "has come and is never" not in _printed(console)


def test_users_are_told_with_sentinels_included() -> None:
    """In a task, in the list, and of the batch at the shuffler."""
    summary = dataclasses.replace(_summary(TaskState.RELEASED), n_users=20)
    status = BatchStatus(state=BatchState.CLOSED, n_users=20, n_min=10, shuffle_seconds=0.0)
    shown, listed, batch = _console(), _console(), _console()
    task_view.show(summary.task_digest, published().task, summary, shown)
    task_view.show_list([summary], listed)
    task_view.show_batch(status, batch)

    for console in (shown, listed, batch):
        assert _SENTINELS in _printed(console)


def test_a_list_of_tasks_is_whole_on_a_narrow_screen() -> None:
    """Names and dates are folded, not cut; and one task is not `1 tasks`."""
    console = _console(80)
    summary = dataclasses.replace(_summary(TaskState.OPEN), population="%" * 40)
    task_view.show_list([summary], console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO

    assert "…" not in printed
    assert 40 == printed.count("%")
    assert "1 task" == printed.splitlines()[0].strip()
