"""A task as an operator sees it: only what this task claims, and does."""

import dataclasses
import io
import math

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from common.messages.batch import BatchState, BatchStatus, TaskState
from common.task.dummy_spec import KEEP_SUM, ShufflerSpec
from common.task.task import Task
from deploy.tasks import task_view
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task
from tests.support.tasks import published
from tests.support.wire_parsers import _summary

_SENTINELS = "an operator's sentinels included; n_min must hold without them"


def _printed(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]  # a StringIO


def _console(width: int = 120) -> Console:
    return Console(file=io.StringIO(), width=width)


def _local() -> Task:
    return published(
        protocol="ldp-oue", buckets=0, dummies_per_user=0, assumed_honest_fraction=0.9
    ).task


def test_a_task_is_printed_with_its_guarantees(snapshot: SnapshotAssertion) -> None:
    """State, parameters, and what each coalition could learn."""
    console, summary = _console(), dataclasses.replace(_summary(TaskState.RELEASED), n_users=20)
    task_view.print_state(summary.task_digest, protocol_task("od-hp"), summary, console)

    assert snapshot == _printed(console)


@pytest.mark.parametrize("protocol", [*ITEM_PROTOCOLS, *OF_OTHER_KINDS])
def test_every_protocol_is_described(protocol: str, snapshot: SnapshotAssertion) -> None:
    """The question, the mechanism, and who adds dummies."""
    task = kind_task(protocol) if protocol in OF_OTHER_KINDS else protocol_task(protocol)
    rows = dict(task_view.parameter_rows(task))

    assert snapshot == [
        rows[name] for name in ("asked for", "mechanism", "dummies by users", "shuffler")
    ]


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


def test_a_claim_is_described_with_its_conditions(snapshot: SnapshotAssertion) -> None:
    """Why it exceeds the computed figure; a local one counts on nobody; and a population's."""
    tasks = published().task, _local(), published(population="staff").task

    assert snapshot == [task_view.describe_claim(task) for task in tasks]


def test_users_are_told_with_sentinels_included() -> None:
    """In a task, and of the batch at the shuffler."""
    summary = dataclasses.replace(_summary(TaskState.RELEASED), n_users=20)
    status = BatchStatus(state=BatchState.CLOSED, n_users=20, n_min=10, shuffle_seconds=0.0)
    task, batch = _console(), _console()
    task_view.print_state(summary.task_digest, published().task, summary, task)
    task_view.print_batch(status, batch)

    for console in (task, batch):
        assert _SENTINELS in " ".join(_printed(console).split())
    assert {"batch": "closed", "batch_n_users": 20} == task_view.batch_as_json(status)
    empty = dataclasses.replace(status, n_users=0)
    assert {"batch": "closed"} == task_view.batch_as_json(empty)
    assert {"batch": None} == task_view.batch_as_json(None)


@pytest.mark.parametrize("width", [40, 120])
def test_tasks_are_listed_by_whole_digests(width: int, snapshot: SnapshotAssertion) -> None:
    """Each on a line of its own, to be copied; markup in names stays plain text."""
    console = _console(width)
    alone = dataclasses.replace(_summary(TaskState.OPEN), population="", n_users=0)
    released = dataclasses.replace(
        _summary(TaskState.RELEASED), population="[red]\x1b", deadline=2**62
    )
    task_view.print_list([alone, released], console)

    assert alone.task_digest.hex() in _printed(console).splitlines()
    assert snapshot == _printed(console)
