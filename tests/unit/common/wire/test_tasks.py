import dataclasses
import math
from typing import Final

import pytest

from common.crypto.signing import SignedTask
from common.errors import TaskError, WireError
from common.messages.batch import TaskState
from common.task.domain_spec import EdgesSpec
from common.task.draft import TaskDraft
from common.task_digest import TaskDigest
from common.wire import fields, tasks
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_draft_fields
from tests.support.protocol_tasks import protocol_task
from tests.support.tasks import draft
from tests.support.wire_parsers import DRAFTS, _summary

_SIGNED = SignedTask(task_bytes=b"task", signature=bytes(64))
_HYBRID = "mlkem768x25519-hkdf-sha256-chacha20poly1305"
_CLUSTERS: Final = draft(
    protocol="signed", local_epsilon=math.inf, dummies=protocol_task("signed").dummies
)


@pytest.mark.parametrize(
    "asked",
    [
        *DRAFTS,
        _CLUSTERS,
        draft(edges=EdgesSpec(low=0.0, high=9.0, buckets=3, unit="µs")),
        draft(bytes(1216 + 72), suite=_HYBRID, dummies_per_user=1.3),
        *(draft(**kind_draft_fields(name)) for name in OF_OTHER_KINDS),
    ],
    ids=lambda asked: asked.protocol,
)
def test_a_draft_is_read_back_as_it_was_written(asked: TaskDraft) -> None:
    """Absent tables and budgets stay absent."""
    assert asked == tasks.draft_from_wire(tasks.draft_to_wire(asked))


def test_a_published_task_and_its_state_are_read_back() -> None:
    """The bytes are unchanged, in every state; a digest must have 32 bytes."""
    for length in (0, 31, 33):
        with pytest.raises(WireError, match=f"task_digest has {length} bytes; it must have 32"):
            fields.digest_from_wire(bytes(length))
    summaries = [
        dataclasses.replace(_summary(state), task_digest=TaskDigest(bytes([number]) * 32))
        for number, state in enumerate(TaskState)
    ]

    assert _SIGNED == tasks.signed_task_from_wire(tasks.signed_task_to_wire(_SIGNED))
    assert summaries == tasks.summaries_from_wire(tasks.summaries_to_wire(summaries, 1))
    assert (_SIGNED, summaries[2]) == tasks.description_from_wire(
        tasks.description_to_wire(_SIGNED, summaries[2])
    )
    with pytest.raises(WireError, match="must be in ascending order"):
        tasks.summaries_from_wire(tasks.summaries_to_wire(summaries[::-1], 1))
    with pytest.raises(WireError, match="the number of tasks is 51; it may be at most 50"):
        tasks.summaries_from_wire(tasks.summaries_to_wire(summaries[:1] * 51, 1))


@pytest.mark.parametrize("dummies", [-0.5, math.nan, math.inf, 2.0**20 + 1])
def test_the_number_of_dummies_of_a_draft_has_a_range(dummies: float) -> None:
    """The message names the field."""
    message = tasks.draft_to_wire(draft(dummies_per_user=dummies))

    with pytest.raises(WireError, match="dummies_per_user is"):
        tasks.draft_from_wire(message)


def test_a_draft_without_a_suite_has_the_default_one() -> None:
    """Earlier versions send none; an unknown suite and a key of another length are refused."""
    message = tasks.draft_to_wire(draft())
    message.suite = ""
    assert draft() == tasks.draft_from_wire(message)

    message.suite = "rot13"
    with pytest.raises(WireError, match="the suite must be one of x25519"):
        tasks.draft_from_wire(message)
    message.suite = "mlkem768x25519-hkdf-sha256-chacha20poly1305"
    with pytest.raises(WireError, match=r"shuffler_key has 104 bytes; .* has 1288"):
        tasks.draft_from_wire(message)


@pytest.mark.parametrize("table", ["clusters", "rooms"])
@pytest.mark.parametrize("numbers", [[], [1, 0], [1, 0, 2, 3]])
def test_each_type_and_room_of_clusters_has_three_numbers(table: str, numbers: list[int]) -> None:
    """The message names the table."""
    message = tasks.draft_to_wire(_CLUSTERS)
    getattr(message.dummies.clusters, table).add(numbers=numbers)

    with pytest.raises(WireError, match=f"each of the {table} must have 3 numbers"):
        tasks.draft_from_wire(message)


def test_no_number_of_a_table_of_clusters_is_too_large_to_refuse() -> None:
    """The wire format has larger numbers than devices can draw."""
    message = tasks.draft_to_wire(_CLUSTERS)
    message.dummies.clusters.clusters[0].numbers[2] = 2**64 - 1

    with pytest.raises(TaskError, match="a cluster's weight is 18446744073709551615; it must lie"):
        tasks.draft_from_wire(message)
