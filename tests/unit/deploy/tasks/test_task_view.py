"""A task's parameters, guarantees and state in print."""

import dataclasses
from dataclasses import replace
from functools import partial

import pytest
from syrupy.assertion import SnapshotAssertion

from shuffledp.common.messages.batch import BatchState, BatchStatus, TaskState
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.task.draft import RelayDraft
from shuffledp.deploy.tasks import task_view
from shuffledp.deploy.terminal.tables import guarantee_summary
from tests.support.chains import FLANKS, chain
from tests.support.example_tasks import listed
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.printing import printed
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task
from tests.support.tasks import draft, published

_SENTINELS = "an operator's sentinels included; n_min must be met without them"


def test_a_task_is_printed_with_its_guarantees(snapshot: SnapshotAssertion) -> None:
    """The print has its state, its parameters, and a guarantee per coalition."""
    summary = dataclasses.replace(listed(TaskState.RELEASED), n_users=20)
    show = partial(task_view.print_state, summary.task_digest, protocol_task("od-hp"), summary)

    assert snapshot == printed(show, width=120)


@pytest.mark.parametrize("protocol", [*ITEM_PROTOCOLS, *OF_OTHER_KINDS])
def test_every_protocol_is_described(protocol: str, snapshot: SnapshotAssertion) -> None:
    """The rows state its values, its mechanism, and who adds dummies."""
    task = kind_task(protocol) if protocol in OF_OTHER_KINDS else protocol_task(protocol)
    rows = dict(task_view.parameter_rows(task))

    assert snapshot == [
        rows[name] for name in ("values", "mechanism", "dummies by users", "shuffler")
    ]


def test_a_task_with_two_shufflers_is_described() -> None:
    """Each shuffler has a row, and the claim says that either one suffices."""
    wanted = draft(**chain())
    unsigned = RelayDraft(name="second.example", key=b"", noise=FLANKS)
    task = task_view.preview(replace(wanted, relay=unsigned), now=0)
    rows, claim = dict(task_view.parameter_rows(task)), task_view.describe_claim(task)

    assert "first.example: permutes, adds dummies: geometric" == rows["first shuffler"]
    assert "second.example: permutes, adds dummies: geometric" == rows["second shuffler"]
    assert rounded_up(task.coalition_epsilon) == rows["coalition epsilon"]
    assert "shuffler" not in rows
    assert "against the analyzer, if both shufflers are honest; epsilon " in claim
    assert (
        f"epsilon {rows['coalition epsilon']} against the analyzer and either shuffler together, "
        "if first.example or second.example is honest"
    ) in claim
    assert ["first.example", "second.example"] == [
        each["name"] for each in task_view.as_json(task)["shufflers"]
    ]
    [central, *_] = found = task_view.task_guarantees(task)
    said = guarantee_summary(central, found, "inf")
    weaker = rounded_up(found[2].epsilon)
    assert f"epsilon {weaker} against the analyzer with either shuffler." in said


def test_texts_for_people_are_shown_where_they_are_set() -> None:
    """First, in their order."""
    task = protocol_task("sh")
    told = dataclasses.replace(task, title="Commuting", prompt="How do you travel?")

    assert [("title", "Commuting"), ("prompt", "How do you travel?")] == task_view.parameter_rows(
        told
    )[:2]
    assert task_view.parameter_rows(task) == task_view.parameter_rows(told)[2:]


def test_a_claim_is_described_with_its_conditions(snapshot: SnapshotAssertion) -> None:
    """The tasks are an amplified one, a local one, and one with a population."""
    local = {"protocol": "ldp-oue", "buckets": 0, "dummies_per_user": 0}
    tasks = [published(**changes).task for changes in ({}, local, {"population": "staff"})]

    assert snapshot == [task_view.describe_claim(task) for task in tasks]


@pytest.mark.parametrize(
    ("delta", "budget_delta", "named"),
    [(1e-6, 1e-6, None), (1e-6, 0.5, "budget_delta"), (0.5, 0.5, "delta")],
)
def test_one_large_delta_is_warned_of(delta: float, budget_delta: float, named: str | None) -> None:
    """The claim's or else the budget's, under its own name."""
    task = dataclasses.replace(protocol_task("sh"), delta=delta, budget_delta=budget_delta)

    expected = [] if named is None else [f"{named} is 0.5 for 5,000 people"]
    assert expected == [each.partition(":")[0] for each in task_view.claim_warnings(task)]


def test_a_batchs_users_include_sentinels() -> None:
    """A task's state has the same note."""
    status = BatchStatus(state=BatchState.CLOSED, n_users=20, n_min=10, shuffle_seconds=0.0)

    assert _SENTINELS in printed(partial(task_view.print_batch, status))
    assert {"batch": "closed", "batch_n_users": 20} == task_view.batch_as_json(status)
    erased = dataclasses.replace(status, state=BatchState.ERASED)
    assert "fewer than" not in printed(partial(task_view.print_batch, erased))
    unknown = printed(partial(task_view.print_batch, erased), width=999)
    assert "The analyzer, or a second shuffler, has all reports." in unknown
    chained = partial(task_view.print_batch, erased, task=published(**chain()).task)
    text = printed(chained, width=999)
    assert "At the first shuffler: delivered and erased" in text
    assert "The second shuffler has all reports. The shuffler destroys the key" in text
    empty = dataclasses.replace(status, n_users=0)
    assert {"batch": "closed"} == task_view.batch_as_json(empty)
    assert {"batch": None} == task_view.batch_as_json(None)


def test_a_batch_that_waits_for_the_next_party_says_so() -> None:
    """At either shuffler; the second one's counts of layers are shown."""
    status = BatchStatus(
        state=BatchState.PERMUTED,
        n_users=20,
        n_min=1,
        shuffle_seconds=0.0,
        waits_for="relay",
        n_layers=70,
        n_discarded=3,
        reason="its keys are away \x1b",
    )

    first = printed(partial(task_view.print_batch, status), width=999)
    assert "It waits for the relay, which did not take it last time." in first
    assert "Reason: its keys are away \\x1b." in first
    shown = task_view.batch_as_json(status)
    assert ("relay", status.reason) == (shown["batch_waits_for"], shown["batch_reason"])
    at_relay = dataclasses.replace(status, waits_for="analyzer")
    assert (
        "At the second shuffler: permuted, waiting for the analyzer; 70 layers of 20 users "
        "arrived, 3 of them were discarded. Reason: its keys are away"
    ) in " ".join(printed(partial(task_view.print_relay, at_relay)).split())
    lost = dataclasses.replace(at_relay, state=BatchState.DROPPED)
    assert "dropped, and the task gets no result;" in printed(partial(task_view.print_relay, lost))
    assert "no batch" in printed(partial(task_view.print_relay, None))


@pytest.mark.parametrize("width", [40, 120])
def test_tasks_are_listed_by_whole_digests(width: int, snapshot: SnapshotAssertion) -> None:
    """A digest is on a separate line, to be copied; markup in names is escaped."""
    alone = dataclasses.replace(listed(TaskState.OPEN), population="", n_users=0)
    released = dataclasses.replace(
        listed(TaskState.RELEASED), population="[red]\x1b", deadline=2**62
    )
    shown = printed(partial(task_view.print_list, [alone, released]), width)

    assert alone.task_digest.hex() in shown.splitlines()
    assert snapshot == shown
