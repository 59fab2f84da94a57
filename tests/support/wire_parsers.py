"""The messages that the parties, operators and people send: registered as parsers."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf.message import Message

from analyzer.task_builder import complete
from common.messages.batch import BatchId, BatchManifest, BatchProgress, BatchState, BatchStatus
from common.messages.ledger_entry import verify
from common.messages.submission import Outcome
from common.messages.task_summary import TaskState, TaskSummary
from common.runtime.admission_interceptor import read_message
from common.task.draft import PairDraft
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import ShufflerSpec
from common.task_digest import TaskDigest
from common.wire import batches as wire_batches
from common.wire import fields as wire_fields
from common.wire import results as result_wire
from common.wire import results as wire_results
from common.wire import submissions as wire_submissions
from common.wire import tasks as draft_wire
from common.wire import tasks as task_summary_wire
from common.wire import tasks as wire_tasks
from deploy.results.ledger import as_json as ledger_as_json
from deploy.results.result_json import as_json
from deploy.terminal.json_output import dumps
from protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2, task_pb2, user_agent_pb2
from tests.support.kind_tasks import OF_OTHER_KINDS, VALUES, kind_draft_fields
from tests.support.ledger_entries import first_entry
from tests.support.parsers import Parser
from tests.support.results import of_other_kinds, result
from tests.support.tasks import draft, published

_DIGEST: Final = TaskDigest(b"\xd1" * 32)
_MANIFEST: Final = BatchManifest(
    task_digest=_DIGEST, batch_id=BatchId(b"b" * 16), n_users=20, n_reports=40
)
_OTHER_ESTIMATES: Final = of_other_kinds()
_DRAFTS: Final = (
    draft(),
    draft(domain_size=2, labels=("yes", "no"), buckets=0, population="staff", budget_epsilon=5.0),
    draft(protocol="sh", buckets=0, dummies_per_user=0.0, budget_delta=1e-5),
    draft(
        dummies_per_user=0.0,
        dummies=DummySpec(
            law="negative-binomial", per_user=1, trials=8, extra_weight=2**30, most=90
        ),
    ),
    draft(
        protocol="sageo",
        buckets=0,
        dummies_per_user=0.0,
        local_epsilon=float("inf"),
        shuffler=ShufflerSpec(
            law="geometric",
            keep_weight=2**31,
            peak=20,
            left_weight=2**29,
            right_weight=2**29,
            most=60,
        ),
    ),
)

_OTHER_DRAFTS: Final = tuple(
    draft(
        **kind_draft_fields(name)
        | ({"pairs": PairDraft(fakes=(0.5,) * 6)} if name == "priv-kv" else {})
    )
    for name in OF_OTHER_KINDS
)


def _summary(state: TaskState) -> TaskSummary:
    return TaskSummary(
        task_digest=_DIGEST,
        state=state,
        protocol="od-hp",
        domain_size=9,
        population="staff",
        n_min=2,
        target_size=3,
        deadline=2**31,
        n_users=5,
        failure="none could be counted",
    )


def message_parser(
    name: str,
    message: type[Message],
    read: Callable[[Any], object],
    seeds: Sequence[Message],
    *covers: str,
    share: float = 16.0,
) -> Parser:
    """Register what reads a message."""
    return Parser(
        name=name,
        read=lambda raw: read(read_message(message.FromString, raw)),
        seeds=tuple(seed.SerializeToString() for seed in seeds),
        form="protobuf",
        covers=("common.runtime.admission_interceptor.read_message", *covers),
        share=share,
    )


def _shown(message: analyzer_pb2.GetResultResponse) -> str:
    """Read a result as an operator does: to the JSON file that is written of it."""
    return dumps(as_json(result_wire.result_from_wire(message)))


def _verified(message: analyzer_pb2.GetLedgerResponse) -> str:
    """Read a ledger as an operator does: verified, and written as JSON."""
    entries = wire_results.ledger_from_wire(message)
    return dumps(ledger_as_json(entries, verify(entries), []))


def _completed(message: analyzer_pb2.CreateTaskRequest) -> bytes:
    """Read a draft as the analyzer does: to the bytes of a task."""
    wanted = draft_wire.draft_from_wire(message)
    return complete(wanted, analyzer_key=bytes(31) + b"\x09", nonce=bytes(32)).to_bytes()


WIRE_PARSERS: Final = (
    Parser(
        name="task digest",
        read=wire_fields.digest_from_wire,
        seeds=(bytes(32), b"d" * 32),
        form="binary",
        covers=("common.wire.fields.digest_from_wire",),
    ),
    message_parser(
        "signed task",
        task_pb2.SignedTask,
        wire_tasks.signed_task_from_wire,
        [wire_tasks.signed_task_to_wire(published().signed)],
        "common.wire.tasks.signed_task_from_wire",
    ),
    message_parser(
        "contribution",
        user_agent_pb2.ContributeRequest,
        wire_submissions.contribution_from_wire,
        [
            user_agent_pb2.ContributeRequest(task_digest=_DIGEST, value=0),
            user_agent_pb2.ContributeRequest(task_digest=_DIGEST, value=2**63, person="Ada"),
            *(
                wire_submissions.contribution_to_wire(_DIGEST, value, "")
                for value in VALUES.values()
            ),
        ],
        "common.wire.submissions.contribution_from_wire",
    ),
    message_parser(
        "envelope",
        shuffler_pb2.SubmitRequest,
        wire_submissions.envelope_from_wire,
        [shuffler_pb2.SubmitRequest(task_digest=_DIGEST, envelope=bytes(184))],
        "common.wire.submissions.envelope_from_wire",
    ),
    message_parser(
        "envelopes",
        shuffler_pb2.SubmitBulkRequest,
        wire_submissions.envelopes_from_wire,
        [shuffler_pb2.SubmitBulkRequest(task_digest=_DIGEST, envelopes=[bytes(184)] * 3)],
        "common.wire.submissions.envelopes_from_wire",
    ),
    message_parser(
        "outcomes",
        shuffler_pb2.SubmitBulkResponse,
        wire_submissions.outcomes_from_wire,
        [wire_submissions.outcomes_to_wire(list(Outcome))],
        "common.wire.submissions.outcomes_from_wire",
    ),
    message_parser(
        "batch status",
        shuffler_pb2.GetBatchStatusResponse,
        wire_batches.status_from_wire,
        [
            wire_batches.status_to_wire(
                BatchStatus(state=state, n_users=5, n_min=2, shuffle_seconds=0.5)
            )
            for state in BatchState
        ],
        "common.wire.batches.status_from_wire",
    ),
    message_parser(
        "batch progress",
        shuffler_pb2.GetBatchProgressResponse,
        wire_batches.progress_from_wire,
        [
            wire_batches.progress_to_wire(
                BatchProgress(
                    state=BatchState.COLLECTING,
                    n_users=5,
                    n_min=2,
                    target_size=9,
                    deadline=2**31,
                    refused={"malformed": 3, "token used": 1},
                    repeated=4,
                )
            )
        ],
        "common.wire.batches.progress_from_wire",
    ),
    message_parser(
        "tasks page",
        analyzer_pb2.ListTasksRequest,
        task_summary_wire.tasks_after_from_wire,
        [analyzer_pb2.ListTasksRequest(), analyzer_pb2.ListTasksRequest(after=_DIGEST)],
        "common.wire.tasks.tasks_after_from_wire",
    ),
    message_parser(
        "list of tasks",
        analyzer_pb2.ListTasksResponse,
        task_summary_wire.summaries_from_wire,
        [task_summary_wire.summaries_to_wire([_summary(state) for state in TaskState][:1])],
        "common.wire.tasks.summaries_from_wire",
    ),
    message_parser(
        "description of a task",
        analyzer_pb2.DescribeTaskResponse,
        task_summary_wire.description_from_wire,
        [
            task_summary_wire.description_to_wire(published().signed, _summary(state))
            for state in TaskState
        ],
        "common.wire.tasks.description_from_wire",
        share=8,
    ),
    message_parser(
        "manifest",
        analyzer_pb2.DeliverBatchRequest,
        wire_batches.manifest_from_wire,
        [wire_batches.manifest_to_wire(_MANIFEST)],
        "common.wire.batches.manifest_from_wire",
    ),
    message_parser(
        "chunk",
        analyzer_pb2.DeliverBatchRequest,
        wire_batches.chunk_from_wire,
        [wire_batches.chunk_to_wire(bytes(60)), wire_batches.chunk_to_wire(bytes(6000))],
        "common.wire.batches.chunk_from_wire",
    ),
    message_parser(
        "result",
        analyzer_pb2.GetResultResponse,
        _shown,
        [
            result_wire.result_to_wire(dataclasses.replace(result(_DIGEST), **changes))
            for changes in ({}, *_OTHER_ESTIMATES)
        ],
        "common.wire.results.result_from_wire",
        "common.wire.results.estimate_from_wire",
        "common.wire.results._bit_table_from_wire",
        share=8,
    ),
    Parser(
        name="kept result",
        read=result_wire.result_from_bytes,
        seeds=(result_wire.result_to_bytes(result(_DIGEST)),),
        form="protobuf",
        covers=("common.wire.results.result_from_bytes",),
        share=8,
    ),
    message_parser(
        "ledger page",
        analyzer_pb2.GetLedgerRequest,
        wire_results.after_from_wire,
        [analyzer_pb2.GetLedgerRequest(after=3)],
        "common.wire.results.after_from_wire",
    ),
    message_parser(
        "ledger",
        analyzer_pb2.GetLedgerResponse,
        _verified,
        [wire_results.ledger_to_wire([first_entry()]), wire_results.ledger_to_wire([])],
        "common.wire.results.ledger_from_wire",
    ),
    message_parser(
        "draft",
        analyzer_pb2.CreateTaskRequest,
        draft_wire.draft_from_wire,
        [draft_wire.draft_to_wire(wanted) for wanted in (*_DRAFTS, *_OTHER_DRAFTS)],
        "common.wire.tasks.draft_from_wire",
    ),
    message_parser(
        "draft to a task",
        analyzer_pb2.CreateTaskRequest,
        _completed,
        [draft_wire.draft_to_wire(wanted) for wanted in _DRAFTS],
        share=1,  # a search for an epsilon each
    ),
)
