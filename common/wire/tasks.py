"""An operator's draft on its way to the analyzer; see common/wire/batches.py."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final, get_args

from common.crypto.signing import SignedTask
from common.crypto.suites import DEFAULT_SUITE, SUITES, suite_named
from common.errors import WireError
from common.messages.task_summary import TaskState, TaskSummary
from common.protocols import DummyLaw, ShufflerLaw
from common.task.draft import NumberDraft, PairDraft, TaskDraft, TextDraft
from common.task.dummy_spec import MAX_DUMMIES, DummySpec
from common.task.shuffler_spec import PERMUTES, ShufflerSpec
from common.task.specs import (
    MAX_BITS,
    MAX_COHORTS,
    MAX_DOMAIN_SIZE,
    MAX_HASHES,
    MAX_QUESTION_CHARACTERS,
    MAX_TEXT_BYTES,
)
from common.task.task import MAX_POPULATION_CHARACTERS, MAX_USERS
from common.task.text import MAX_LABEL_CHARACTERS
from common.task_digest import TaskDigest
from common.wire.batches import digest_from_wire, signed_task_from_wire, signed_task_to_wire
from common.wire.fields import amount, count, exactly, short, word
from protos.shuffledp.v1 import analyzer_pb2

_MAX_NAME: Final = 64


def draft_to_wire(draft: TaskDraft) -> analyzer_pb2.CreateTaskRequest:
    """Write an operator's draft."""
    return analyzer_pb2.CreateTaskRequest(
        protocol=draft.protocol,
        domain_size=draft.domain_size,
        labels=draft.labels,
        buckets=draft.buckets,
        dummies_per_user=draft.dummies_per_user,
        local_epsilon=draft.local_epsilon,
        delta=draft.delta,
        n_min=draft.n_min,
        target_size=draft.target_size,
        deadline=draft.deadline,
        assumed_honest_fraction=draft.assumed_honest_fraction,
        shuffler_key=draft.shuffler_key,
        population=draft.population,
        budget_epsilon=draft.budget_epsilon,
        budget_delta=draft.budget_delta,
        dummies=None if draft.dummies is None else _dummies_to_wire(draft.dummies),
        shuffler=_shuffler_to_wire(draft.shuffler),
        suite=draft.suite,
        numbers=None if draft.numbers is None else _numbers_to_wire(draft.numbers),
        texts=None if draft.texts is None else _texts_to_wire(draft.texts),
        pairs=None if draft.pairs is None else _pairs_to_wire(draft.pairs),
    )


def draft_from_wire(message: analyzer_pb2.CreateTaskRequest) -> TaskDraft:
    """Read an operator's draft."""
    for label in message.labels:
        short("label", label, MAX_LABEL_CHARACTERS)
    suite = word("the suite", message.suite or DEFAULT_SUITE, tuple(SUITES))
    key_bytes = suite_named(suite).public_key_bytes
    return TaskDraft(
        protocol=short("protocol", message.protocol, _MAX_NAME),
        domain_size=count("domain_size", message.domain_size, MAX_DOMAIN_SIZE),
        labels=tuple(message.labels),
        buckets=count("buckets", message.buckets, MAX_DOMAIN_SIZE),
        dummies_per_user=amount("dummies_per_user", message.dummies_per_user, MAX_DUMMIES),
        local_epsilon=message.local_epsilon,
        delta=message.delta,
        n_min=count("n_min", message.n_min, MAX_USERS),
        target_size=count("target_size", message.target_size, MAX_USERS),
        deadline=message.deadline,
        assumed_honest_fraction=message.assumed_honest_fraction,
        shuffler_key=exactly("shuffler_key", message.shuffler_key, key_bytes),
        population=short("population", message.population, MAX_POPULATION_CHARACTERS),
        budget_epsilon=message.budget_epsilon if message.HasField("budget_epsilon") else None,
        budget_delta=message.budget_delta if message.HasField("budget_delta") else None,
        dummies=_dummies_from_wire(message.dummies) if message.HasField("dummies") else None,
        shuffler=(
            _shuffler_from_wire(message.shuffler) if message.HasField("shuffler") else PERMUTES
        ),
        suite=suite,
        numbers=_numbers_from_wire(message.numbers) if message.HasField("numbers") else None,
        texts=_texts_from_wire(message.texts) if message.HasField("texts") else None,
        pairs=_pairs_from_wire(message.pairs) if message.HasField("pairs") else None,
    )


def _dummies_to_wire(spec: DummySpec) -> analyzer_pb2.DummySpec:
    return analyzer_pb2.DummySpec(
        law=spec.law,
        per_user=spec.per_user,
        trials=spec.trials,
        extra_weight=spec.extra_weight,
        most=spec.most,
    )


def _dummies_from_wire(message: analyzer_pb2.DummySpec) -> DummySpec:
    return DummySpec(
        law=word("the law of the dummies", message.law, get_args(DummyLaw)),
        per_user=message.per_user,
        trials=message.trials,
        extra_weight=message.extra_weight,
        most=message.most,
    )


def _shuffler_to_wire(spec: ShufflerSpec) -> analyzer_pb2.ShufflerSpec:
    return analyzer_pb2.ShufflerSpec(**asdict(spec))


def _shuffler_from_wire(message: analyzer_pb2.ShufflerSpec) -> ShufflerSpec:
    return ShufflerSpec(
        law=word("the law of the shuffler's dummies", message.law, get_args(ShufflerLaw)),
        keep_weight=message.keep_weight,
        trials=message.trials,
        peak=message.peak,
        left_weight=message.left_weight,
        right_weight=message.right_weight,
        most=message.most,
    )


def _numbers_to_wire(draft: NumberDraft) -> analyzer_pb2.NumberDraft:
    return analyzer_pb2.NumberDraft(low=draft.low, high=draft.high)


def _numbers_from_wire(message: analyzer_pb2.NumberDraft) -> NumberDraft:
    return NumberDraft(low=message.low, high=message.high)


def _texts_to_wire(draft: TextDraft) -> analyzer_pb2.TextDraft:
    return analyzer_pb2.TextDraft(**asdict(draft))


def _texts_from_wire(message: analyzer_pb2.TextDraft) -> TextDraft:
    return TextDraft(
        bits=count("bits", message.bits, MAX_BITS),
        hashes=count("hashes", message.hashes, MAX_HASHES),
        cohorts=count("cohorts", message.cohorts, MAX_COHORTS),
        permanent=amount("permanent", message.permanent, 1),
        unset=amount("unset", message.unset, 1),
        set=amount("set", message.set, 1),
        most_bytes=count("most_bytes", message.most_bytes, MAX_TEXT_BYTES),
        question=short("question", message.question, MAX_QUESTION_CHARACTERS),
    )


def _pairs_to_wire(draft: PairDraft) -> analyzer_pb2.PairDraft:
    return analyzer_pb2.PairDraft(**asdict(draft))


def _pairs_from_wire(message: analyzer_pb2.PairDraft) -> PairDraft:
    return PairDraft(
        low=message.low,
        high=message.high,
        key_share=amount("key_share", message.key_share, 1),
        fakes=tuple(message.fakes),
    )


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
