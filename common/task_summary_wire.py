"""What an analyzer tells its operator of tasks, as protocol buffers."""

from collections.abc import Sequence
from typing import Final

from common.errors import WireError
from common.signing import SignedTask
from common.task_digest import TaskDigest
from common.task_summary import TaskState, TaskSummary
from common.wire import digest_from_wire, signed_task_from_wire, signed_task_to_wire
from protos.shuffledp.v1 import analyzer_pb2

MAX_LISTED_TASKS: Final = 50
"""The most that one call gives."""

_STATES: Final = {
    TaskState.OPEN: analyzer_pb2.TASK_STATE_OPEN,
    TaskState.OVERDUE: analyzer_pb2.TASK_STATE_OVERDUE,
    TaskState.STAGED: analyzer_pb2.TASK_STATE_STAGED,
    TaskState.RELEASED: analyzer_pb2.TASK_STATE_RELEASED,
    TaskState.UNUSABLE: analyzer_pb2.TASK_STATE_UNUSABLE,
}
_STATE_NUMBERS: Final = {number: state for state, number in _STATES.items()}


def tasks_after_from_wire(message: analyzer_pb2.ListTasksRequest) -> TaskDigest | None:
    """Read after which task an operator wants to read on. Run by the analyzer."""
    return digest_from_wire(message.after) if message.after else None


def summaries_to_wire(summaries: Sequence[TaskSummary]) -> analyzer_pb2.ListTasksResponse:
    """Write a page of the list of tasks."""
    return analyzer_pb2.ListTasksResponse(tasks=[_to_wire(summary) for summary in summaries])


def summaries_from_wire(message: analyzer_pb2.ListTasksResponse) -> list[TaskSummary]:
    """Read a page of the list of tasks; they come in the order of their digests."""
    if len(message.tasks) > MAX_LISTED_TASKS:
        raise WireError(
            f"{len(message.tasks)} tasks in one answer; at most {MAX_LISTED_TASKS} are read"
        )
    summaries = [_from_wire(summary) for summary in message.tasks]
    digests = [summary.task_digest for summary in summaries]
    if digests != sorted(set(digests)):
        raise WireError(f"{len(digests)} tasks in one answer; they must come in ascending order")
    return summaries


def description_to_wire(
    signed: SignedTask, summary: TaskSummary
) -> analyzer_pb2.DescribeTaskResponse:
    """Write a task and what became of it."""
    return analyzer_pb2.DescribeTaskResponse(
        task=signed_task_to_wire(signed), summary=_to_wire(summary)
    )


def description_from_wire(
    message: analyzer_pb2.DescribeTaskResponse,
) -> tuple[SignedTask, TaskSummary]:
    """Read a task and what became of it."""
    return signed_task_from_wire(message.task), _from_wire(message.summary)


def _to_wire(summary: TaskSummary) -> analyzer_pb2.TaskSummary:
    return analyzer_pb2.TaskSummary(
        task_digest=summary.task_digest,
        state=_STATES[summary.state],
        protocol=summary.protocol,
        domain_size=summary.domain_size,
        population=summary.population,
        n_min=summary.n_min,
        target_size=summary.target_size,
        deadline=summary.deadline,
        n_users=summary.n_users,
        failure=summary.failure,
    )


def _from_wire(message: analyzer_pb2.TaskSummary) -> TaskSummary:
    if message.state not in _STATE_NUMBERS:
        raise WireError(f"task state {message.state} is not one that this program knows")
    return TaskSummary(
        task_digest=digest_from_wire(message.task_digest),
        state=_STATE_NUMBERS[message.state],
        protocol=message.protocol,
        domain_size=message.domain_size,
        population=message.population,
        n_min=message.n_min,
        target_size=message.target_size,
        deadline=message.deadline,
        n_users=message.n_users,
        failure=message.failure,
    )
