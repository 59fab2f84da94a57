"""Convert tasks, drafts and the list of tasks between protocol buffers and values."""

from collections.abc import Sequence
from typing import Final

from shuffledp.common import limits
from shuffledp.common.crypto.signing import SIGNATURE_BYTES, KeyUse, SignedTask, split_key
from shuffledp.common.errors import WireError
from shuffledp.common.messages.batch import TaskSummary
from shuffledp.common.task import canonical
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.transparency.merkle import MAX_SIZE
from shuffledp.common.wire.fields import Codec, digest_from_wire
from shuffledp.protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2, task_pb2

MAX_LISTED_TASKS: Final = 50
"""Maximum number of tasks in one call."""


def signed_task_to_wire(signed: SignedTask) -> task_pb2.SignedTask:
    """Encode a published task."""
    return task_pb2.SignedTask(task=signed.task_bytes, signature=signed.signature)


def signed_task_from_wire(message: task_pb2.SignedTask) -> SignedTask:
    """Parse a published task; its bytes are kept unchanged."""
    return SignedTask(
        task_bytes=limits.parse_bounded("task", message.task, canonical.MAX_TASK_BYTES),
        signature=limits.parse_fixed("signature", message.signature, SIGNATURE_BYTES),
    )


def task_question_from_wire(
    message: shuffler_pb2.FetchTaskRequest,
) -> tuple[TaskDigest, int | None]:
    """Parse a request: task, and size of the device's last checkpoint; None if it has no log."""
    digest = digest_from_wire(message.task_digest)
    if not message.HasField("log_size"):
        return digest, None
    return digest, limits.parse_count("log_size", message.log_size, MAX_SIZE)


def draft_to_wire(draft: TaskDraft) -> analyzer_pb2.CreateTaskRequest:
    """Encode an operator's draft."""
    return analyzer_pb2.CreateTaskRequest(draft=canonical.encode("draft", draft))


def draft_from_wire(message: analyzer_pb2.CreateTaskRequest) -> TaskDraft:
    """Parse an operator's draft; raise TaskError or WireError, which name the field."""
    draft: TaskDraft = canonical.from_json(TaskDraft, canonical.decode("draft", message.draft))
    split_key(draft.suite, KeyUse.ENVELOPES, draft.shuffler_key)
    if draft.relay is not None:
        split_key(draft.suite, KeyUse.LAYERS, draft.relay.key)
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
    limits.parse_count("the number of tasks", len(message.tasks), MAX_LISTED_TASKS)
    summaries = [_SUMMARY.from_wire(summary) for summary in message.tasks]
    digests = [summary.task_digest for summary in summaries]
    if digests != sorted(set(digests)):
        raise WireError(f"the answer's {len(digests)} tasks must be in ascending order of digest")
    return summaries


def time_from_wire(message: analyzer_pb2.ListTasksResponse) -> int:
    """Return the analyzer's time; raise WireError if it is of a version that does not tell it."""
    return limits.parse_positive("the analyzer's time", message.now, limits.MAX_UNIX_TIME)


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
