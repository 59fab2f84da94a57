"""Convert tasks, drafts and the list of tasks between protocol buffers and values."""

from collections.abc import Sequence
from typing import Final

from common.crypto.hpke import DEFAULT_SUITE, SUITES
from common.crypto.signed_key import split_envelope_key
from common.crypto.signing import SIGNATURE_BYTES, SignedTask
from common.errors import WireError
from common.limits import (
    MAX_UNIX_TIME,
    parse_bounded,
    parse_count,
    parse_fixed,
    parse_positive,
    parse_word,
)
from common.messages.batch import TaskSummary
from common.task.cluster_dummies import ClusterDummies
from common.task.draft import TaskDraft
from common.task.dummy_forms import DUMMIES
from common.task.shuffler_spec import NOISES, ShufflerSpec
from common.task.task import MAX_TASK_BYTES
from common.task_digest import TaskDigest
from common.wire.fields import Codec, UnionCodec, digest_from_wire
from protos.shuffledp.v1 import analyzer_pb2, task_pb2

MAX_LISTED_TASKS: Final = 50
"""Maximum number of tasks in one call."""


def signed_task_to_wire(signed: SignedTask) -> task_pb2.SignedTask:
    """Encode a published task."""
    return task_pb2.SignedTask(task=signed.task_bytes, signature=signed.signature)


def signed_task_from_wire(message: task_pb2.SignedTask) -> SignedTask:
    """Parse a published task; its bytes are kept unchanged."""
    return SignedTask(
        task_bytes=parse_bounded("task", message.task, MAX_TASK_BYTES),
        signature=parse_fixed("signature", message.signature, SIGNATURE_BYTES),
    )


_NUMBERS: Final = 3
"""Numbers that describe a type of clusters, or a room."""


def _triples(name: str, field: Sequence[analyzer_pb2.Weights]) -> tuple[tuple[int, ...], ...]:
    found = tuple(tuple(each.numbers) for each in field)
    if any(len(numbers) != _NUMBERS for numbers in found):
        raise WireError(f"each of the {name} must have {_NUMBERS} numbers")
    return found


def _triples_to_wire(triples: Sequence[Sequence[int]]) -> list[analyzer_pb2.Weights]:
    return [analyzer_pb2.Weights(numbers=each) for each in triples]


_CLUSTERS: Final = Codec(
    ClusterDummies,
    analyzer_pb2.ClusterDummies,
    {"clusters": _triples, "rooms": _triples},
    {"clusters": _triples_to_wire, "rooms": _triples_to_wire},
)
_DUMMIES: Final = UnionCodec(DUMMIES, analyzer_pb2.Dummies, {"clusters": _CLUSTERS})
_NOISE: Final = UnionCodec(NOISES, analyzer_pb2.ItemNoise)
_DRAFT: Final = Codec(
    TaskDraft,
    analyzer_pb2.CreateTaskRequest,
    {
        "dummies": _DUMMIES,
        "shuffler": Codec(ShufflerSpec, analyzer_pb2.ShufflerSpec, {"noise": _NOISE}),
        "suite": lambda _, name: parse_word("the suite", name or DEFAULT_SUITE, tuple(SUITES)),
    },
)
"""Specs check their own fields; the analyzer checks drafts when it builds the specs."""
draft_to_wire = _DRAFT.to_wire


def draft_from_wire(message: analyzer_pb2.CreateTaskRequest) -> TaskDraft:
    """Parse an operator's draft."""
    draft = _DRAFT.from_wire(message)
    split_envelope_key(draft.suite, draft.shuffler_key)
    return draft


_SUMMARY: Final = Codec(TaskSummary, analyzer_pb2.TaskSummary)


def tasks_after_from_wire(message: analyzer_pb2.ListTasksRequest) -> TaskDigest | None:
    """Parse the task after which a page begins; None for the first. Run by the analyzer."""
    return digest_from_wire(message.after) if message.after else None


def summaries_to_wire(
    summaries: Sequence[TaskSummary], now: float
) -> analyzer_pb2.ListTasksResponse:
    """Encode a page of the list of tasks, with the analyzer's time."""
    return analyzer_pb2.ListTasksResponse(tasks=map(_SUMMARY.to_wire, summaries), now=int(now))


def summaries_from_wire(message: analyzer_pb2.ListTasksResponse) -> list[TaskSummary]:
    """Parse a page of the list of tasks; raise WireError unless it is sorted by digest."""
    parse_count("the number of tasks", len(message.tasks), MAX_LISTED_TASKS)
    summaries = [_SUMMARY.from_wire(summary) for summary in message.tasks]
    digests = [summary.task_digest for summary in summaries]
    if digests != sorted(set(digests)):
        raise WireError(f"the answer's {len(digests)} tasks must be in ascending order of digest")
    return summaries


def time_from_wire(message: analyzer_pb2.ListTasksResponse) -> int:
    """Return the analyzer's time; raise WireError if it is of a version that does not tell it."""
    return parse_positive("the analyzer's time", message.now, MAX_UNIX_TIME)


def description_to_wire(
    signed: SignedTask, summary: TaskSummary
) -> analyzer_pb2.DescribeTaskResponse:
    """Encode a published task and its summary."""
    return analyzer_pb2.DescribeTaskResponse(
        task=signed_task_to_wire(signed), summary=_SUMMARY.to_wire(summary)
    )


def description_from_wire(
    message: analyzer_pb2.DescribeTaskResponse,
) -> tuple[SignedTask, TaskSummary]:
    """Parse a published task and its summary."""
    return signed_task_from_wire(message.task), _SUMMARY.from_wire(message.summary)
