import dataclasses
import json
import math
from typing import Any, Final

import pytest

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import TaskError, WireError
from shuffledp.common.messages.batch import TaskState
from shuffledp.common.task.canonical import to_json
from shuffledp.common.task.domain_spec import EdgesSpec
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire import fields, tasks
from shuffledp.protos.shuffledp.v1 import analyzer_pb2
from tests.support.example_tasks import DRAFTS, listed
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_draft_fields
from tests.support.protocol_tasks import protocol_task
from tests.support.tables import table
from tests.support.tasks import draft

_SIGNED = SignedTask(task_bytes=b"task", signature=bytes(64))
_HYBRID = "mlkem768x25519-hkdf-sha256-chacha20poly1305"
_CLUSTERS: Final = draft(
    protocol="signed", local_epsilon=math.inf, dummies=protocol_task("signed").dummies
)


@table(
    "asked",
    [
        *DRAFTS,
        _CLUSTERS,
        draft(edges=EdgesSpec(low=0.0, high=9.0, buckets=3, unit="µs")),
        draft(bytes(1216 + 72), suite=_HYBRID, dummies_per_user=1.3),
        *(draft(**kind_draft_fields(name)) for name in OF_OTHER_KINDS),
    ],
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
        dataclasses.replace(listed(state), task_digest=TaskDigest(bytes([number]) * 32))
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


@pytest.mark.parametrize("dummies", [-0.5, math.inf, 2.0**20 + 1])
def test_the_number_of_dummies_of_a_draft_has_a_range(dummies: float) -> None:
    """The message names the field; what is no number is not even sent."""
    message = tasks.draft_to_wire(draft(dummies_per_user=dummies))

    with pytest.raises(WireError, match="dummies_per_user is"):
        tasks.draft_from_wire(message)
    with pytest.raises(TaskError, match="dummies_per_user must be a number above"):
        tasks.draft_to_wire(draft(dummies_per_user=math.nan))


def _changed(asked: TaskDraft, **changes: Any) -> analyzer_pb2.CreateTaskRequest:
    fields = json.loads(tasks.draft_to_wire(asked).draft) | changes
    return analyzer_pb2.CreateTaskRequest(draft=json.dumps(fields).encode())


def test_a_draft_without_a_suite_has_the_default_one() -> None:
    """An unknown suite and a key of another length are refused."""
    assert "suite" not in json.loads(tasks.draft_to_wire(draft()).draft)
    with pytest.raises(WireError, match="suite must be one of x25519"):
        tasks.draft_from_wire(_changed(draft(), suite="rot13"))
    with pytest.raises(WireError, match=r"shuffler_key has 104 bytes; .* has 1288"):
        tasks.draft_from_wire(_changed(draft(), suite=_HYBRID))


def test_a_draft_that_breaks_a_rule_is_refused() -> None:
    """The message names the field; tests/unit/common/task/test_draft.py has one for each rule."""
    for raw, message in (
        (b'{"delta":', "the draft is not JSON in ASCII"),
        (b"[" * 100_000, "the draft is not JSON in ASCII"),
        (bytes(2**21 + 1), "the draft has 2097153 bytes; the limit is 2097152"),
        (b"[]", "the JSON must be a table"),
        (b"{}", "missing key: deadline, delta, n_min, shuffler_key, target_size"),
    ):
        with pytest.raises(TaskError, match=message):
            tasks.draft_from_wire(analyzer_pb2.CreateTaskRequest(draft=raw))


def test_no_number_of_a_table_of_clusters_is_too_large_to_refuse() -> None:
    """The wire format has larger numbers than devices can draw."""
    dummies = to_json(_CLUSTERS.dummies)
    dummies["clusters"][0][2] = 2**64
    with pytest.raises(TaskError, match="a cluster's weight is 18446744073709551616; it must lie"):
        tasks.draft_from_wire(_changed(_CLUSTERS, dummies=dummies))
