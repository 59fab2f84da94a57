"""Parsers of all protobuf messages, and of the shuffler's stored batches."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

from shuffledp.analyzer.sentinels import SentinelMatches, match_part
from shuffledp.analyzer.storage.task_table import Sentinel
from shuffledp.analyzer.task_builder import complete
from shuffledp.audit.harness.clock import ManualClock
from shuffledp.audit.harness.tasks import FAR_FUTURE
from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.crypto.signing import SigningIdentity, is_valid_receipt, sign_receipt
from shuffledp.common.messages.batch import (
    BatchId,
    BatchManifest,
    BatchPart,
    BatchState,
    BatchStatus,
    TaskState,
)
from shuffledp.common.messages.inclusion_proof import HASH_BYTES, bucket_hash, split
from shuffledp.common.messages.ledger_entry import Decision, DecisionEntry, verify
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime.blocks import FolderBlocks
from shuffledp.common.runtime.parts import jobs
from shuffledp.common.task.draft import PairDraft
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire import batches, fields, issuance, results, submissions, tasks
from shuffledp.deploy.results.export import as_json
from shuffledp.deploy.results.ledger import LedgerView
from shuffledp.deploy.terminal.json_output import dumps
from shuffledp.protos.shuffledp.v1 import analyzer_pb2, issuer_pb2, shuffler_pb2, user_agent_pb2
from shuffledp.shuffler.active_batches import ActiveBatch
from shuffledp.shuffler.batch_states import ClosingRule
from shuffledp.shuffler.front_end import batch_from_wire, batch_to_wire
from shuffledp.shuffler.inclusion import InclusionProofs, ProofJob
from tests.support.batch_progress import progress
from tests.support.example_tasks import DRAFTS, EXAMPLE_DIGEST, listed
from tests.support.kind_results import kind_collected
from tests.support.kind_tasks import OF_OTHER_KINDS, OTHER_KINDS, VALUES, kind_draft_fields
from tests.support.leaves import GrownTree, commitment_over, some_leaves
from tests.support.ledger_entries import decision_entry, first_entry
from tests.support.parsers import Parser, directory, file_parser, message_parser
from tests.support.results import result
from tests.support.tasks import draft, published
from tests.support.tokens import TOKENS

_PUBLISHED: Final = published()
_SIGNED: Final = _PUBLISHED.signed
_RULE: Final = ClosingRule(n_min=10, target_size=20, deadline=FAR_FUTURE)
_BATCH: Final = ActiveBatch(
    digest=EXAMPLE_DIGEST,
    signed=_SIGNED,
    task=_PUBLISHED.task,
    batch_id=BatchId(bytes(16)),
    key=BatchKey(bytes(32)),
    closing_rule=_RULE,
)
_REPORT_BYTES: Final = 60
_OTHER_RESULTS: Final = [kind_collected(kind).result for kind in OTHER_KINDS]
_PAIRS: Final = {"priv-kv": {"pairs": PairDraft(fakes=(0.5,) * 6)}}
_OTHER_DRAFTS: Final = [
    draft(**kind_draft_fields(name) | _PAIRS.get(name, {})) for name in OF_OTHER_KINDS
]

_IDENTITY: Final = SigningIdentity(bytes(range(32)))
_PINNED: Final = _IDENTITY.public_identity()
_LEAVES: Final = some_leaves(600)  # enough for two buckets
_COMMITMENT: Final = commitment_over(_LEAVES, _IDENTITY, EXAMPLE_DIGEST)
_KEPT_COMMITMENT: Final = batches.commitment_to_wire(_COMMITMENT).SerializeToString()
_JOB: Final = ProofJob(
    batch_id=BatchId(bytes(16)),
    key=bytes(32),
    blocks=FolderBlocks(Path("blocks")),
    proof_folder="proof",
    report_bytes=60,
    salt=bytes(32),
    n_parts=3,
    n_ranges=2,
)
_HEADER: Final = (2**40).to_bytes(8) + (1).to_bytes(4)


def _proof(leaves: list[bytes]) -> shuffler_pb2.GetInclusionResponse:
    signed = commitment_over(leaves, _IDENTITY, EXAMPLE_DIGEST)
    proof = GrownTree(leaves).prove(signed, signed.prefix_of(leaves[0]))
    return batches.proof_to_wire(proof, len(proof.bucket) // HASH_BYTES)


def _verified(message: analyzer_pb2.GetLedgerResponse) -> str:
    entries = results.ledger_from_wire(message)
    for entry in entries:
        if isinstance(entry, DecisionEntry):
            entry.verify(_PINNED)
    return dumps(LedgerView(entries, verify(entries)).as_json())


def _matched(message: analyzer_pb2.RegisterSentinelsRequest) -> SentinelMatches:
    _, sentinels, known = batches.sentinels_from_wire(message)
    wanted = [Sentinel(leaves=tuple(split(one)), acknowledged=known) for one in sentinels]
    leaves = [leaf for one in wanted for leaf in one.leaves]
    found = match_part(bytes(3 * _REPORT_BYTES), _REPORT_BYTES, leaves)
    return SentinelMatches.joined(wanted, [found])


def _inclusions(folder: Path) -> InclusionProofs:
    """Start on a folder with a task's proof, a block of which may be damaged."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _proof_blocks().items():
        if not (folder / name).exists():
            (folder / name).write_bytes(content)
    return InclusionProofs(
        blocks=FolderBlocks(folder.parent), keep_seconds=1.0, clock=ManualClock(2.0**39)
    )


def _proof_blocks() -> dict[str, bytes]:
    """Return the blocks of the proof over `_LEAVES`."""
    buckets = GrownTree(_LEAVES).buckets
    sizes = [(len(bucket) // HASH_BYTES).to_bytes(4, "little") for bucket in buckets]
    return {
        "commitment": _HEADER + _KEPT_COMMITMENT,
        "buckets": b"".join(
            bucket_hash(bucket) + size for bucket, size in zip(buckets, sizes, strict=True)
        ),
        "leaves.0": b"".join(buckets),
    }


def _answered(inclusions: InclusionProofs, digest: TaskDigest, prefix: int | None) -> bytes:
    relayed = asyncio.run(inclusions.relay(digest, prefix))
    return batches.proof_to_wire(*relayed).SerializeToString()


def _relayed(path: Path) -> bytes:
    """Relay the commitment alone and with a bucket, and delete it."""
    inclusions = _inclusions(path.parent)
    try:
        return b"".join(_answered(inclusions, EXAMPLE_DIGEST, prefix) for prefix in (None, 0))
    finally:
        inclusions.delete_expired()


_TOKEN_REQUEST: Final = issuer_pb2.IssueTokenRequest(
    key_id=bytes(32), blinded=bytes(256), credential=b"secret"
)
_sentinels: Final = partial(analyzer_pb2.RegisterSentinelsRequest, task_digest=EXAMPLE_DIGEST)

_MESSAGES: Final[tuple[tuple[Any, ...], ...]] = (
    ("signed task", tasks.signed_task_from_wire, tasks.signed_task_to_wire(_SIGNED)),
    (
        *("contribution", submissions.contribution_from_wire),
        user_agent_pb2.ContributeRequest(task_digest=EXAMPLE_DIGEST, value=0),
        user_agent_pb2.ContributeRequest(task_digest=EXAMPLE_DIGEST, value=2**63, person="Ada"),
        *(submissions.contribution_to_wire(EXAMPLE_DIGEST, value, "") for value in VALUES.values()),
    ),
    (
        *("envelope", submissions.envelope_from_wire),
        shuffler_pb2.SubmitRequest(task_digest=EXAMPLE_DIGEST, envelope=bytes(184)),
    ),
    (
        *("envelopes", submissions.envelopes_from_wire),
        shuffler_pb2.SubmitBulkRequest(task_digest=EXAMPLE_DIGEST, envelopes=[bytes(184)] * 3),
    ),
    ("outcomes", submissions.outcomes_from_wire, submissions.outcomes_to_wire(list(Outcome))),
    (
        *("dropped", batches.dropped_from_wire),
        *map(batches.dropped_to_wire, (BatchState.DROPPED, BatchState.UNCONFIRMED)),
    ),
    (
        *("batch status", batches.status_from_wire),
        *(
            batches.status_to_wire(BatchStatus(state=one, n_users=5, n_min=2, shuffle_seconds=0.5))
            for one in BatchState
        ),
    ),
    ("batch progress", batches.progress_from_wire, batches.progress_to_wire(progress(5))),
    (
        *("tasks page", tasks.tasks_after_from_wire),
        analyzer_pb2.ListTasksRequest(),
        analyzer_pb2.ListTasksRequest(after=EXAMPLE_DIGEST),
    ),
    (
        *("list of tasks", tasks.summaries_from_wire),
        tasks.summaries_to_wire([listed(TaskState.OPEN)], 1),
    ),
    (*("analyzer's time", tasks.time_from_wire), tasks.summaries_to_wire([], 1_800_000_000.5)),
    (
        *("description of a task", tasks.description_from_wire),
        *(tasks.description_to_wire(_SIGNED, listed(state)) for state in TaskState),
    ),
    (
        *("announcement of a delivery", batches.delivery_from_wire),
        batches.delivery_to_wire(
            BatchManifest(
                task_digest=EXAMPLE_DIGEST, batch_id=BatchId(b"b" * 16), n_users=20, n_reports=40
            ),
            3,
        ),
    ),
    (
        *("parts that have arrived", batches.arrived_from_wire),
        analyzer_pb2.BeginDeliveryResponse(arrived=[0, 2]),
        analyzer_pb2.BeginDeliveryResponse(staged=True),
    ),
    (
        *("header of a part", batches.part_from_wire),
        batches.part_to_wire(
            BatchPart(
                task_digest=EXAMPLE_DIGEST, part=2, n_reports=40, content_hash=bytes(range(32))
            )
        ),
    ),
    (
        *("chunk", batches.chunk_from_wire),
        *(analyzer_pb2.DeliverPartRequest(sealed_reports=bytes(n)) for n in (60, 6000)),
    ),
    (
        *("result", lambda message: dumps(as_json(results.result_from_wire(message)))),
        *map(results.result_to_wire, (result(EXAMPLE_DIGEST), *_OTHER_RESULTS)),
    ),
    ("ledger page", results.after_from_wire, analyzer_pb2.GetLedgerRequest(after=3)),
    (
        *("ledger", _verified),
        results.ledger_to_wire([first_entry(), decision_entry(_IDENTITY, first_entry())]),
        results.ledger_to_wire([]),
    ),
    (
        *("decision on a batch", results.decision_from_wire),
        *(results.decision_to_wire(EXAMPLE_DIGEST, one, "junk") for one in get_args(Decision)),
    ),
    (
        *(
            "answer to a decision",
            lambda message: results.decided_from_wire(message).verify(_PINNED),
        ),
        results.decided_to_wire(decision_entry(_IDENTITY, first_entry())),
    ),
    ("draft", tasks.draft_from_wire, *map(tasks.draft_to_wire, (*DRAFTS, *_OTHER_DRAFTS))),
    (
        "draft to a task",
        lambda message: complete(
            tasks.draft_from_wire(message), analyzer_key=bytes(31) + b"\x09", nonce=bytes(32)
        ).to_bytes(),
        *map(tasks.draft_to_wire, DRAFTS),
    ),
    (
        "receipt",
        lambda message: is_valid_receipt(
            _PINNED, EXAMPLE_DIGEST, b"sealed", submissions.receipt_from_wire(message)
        ),
        shuffler_pb2.SubmitResponse(receipt=sign_receipt(_IDENTITY, EXAMPLE_DIGEST, b"sealed")),
        shuffler_pb2.SubmitResponse(repeated=True),
    ),
    (
        "commitment",
        lambda message: batches.commitment_from_wire(message).verify(_PINNED, EXAMPLE_DIGEST, 9999),
        batches.commitment_to_wire(_COMMITMENT),
    ),
    (
        "proof",
        lambda message: batches.proof_from_wire(message).includes(
            _LEAVES[0], _PINNED, EXAMPLE_DIGEST, 9999
        ),
        *(_proof(_LEAVES), _proof(some_leaves(3))),
    ),
    (
        "question for a bucket",
        lambda message: _answered(
            _inclusions(directory() / "asked" / f"proof-{EXAMPLE_DIGEST.hex()}"),
            *batches.prefix_from_wire(message),
        ),
        batches.prefix_to_wire(EXAMPLE_DIGEST, None),
        batches.prefix_to_wire(EXAMPLE_DIGEST, _COMMITMENT.prefix_of(_LEAVES[0])),
    ),
    (
        *("sentinels", _matched),
        _sentinels(sentinels=[bytes(64), bytes(32)], acknowledged=False),
        _sentinels(acknowledged=True),
    ),
    (
        *("batch for a front-end", partial(batch_from_wire, EXAMPLE_DIGEST)),
        batch_to_wire(_BATCH, None),
        batch_to_wire(_BATCH, _PUBLISHED.shuffler_key),
    ),
    (
        "job for a worker",
        lambda message: jobs.job_from_wire(ProofJob, message, {"blocks": None}),
        jobs.job_to_wire(_JOB),
    ),
    (*("request for a token", issuance.issuance_from_wire), _TOKEN_REQUEST),
    (
        *("answer with a blind signature", issuance.signature_from_wire),
        issuer_pb2.IssueTokenResponse(blind_signature=bytes(256)),
    ),
    (
        *("requests for tokens", issuance.bulk_issuance_from_wire),
        issuer_pb2.IssueTokensRequest(requests=[_TOKEN_REQUEST]),
    ),
    (
        *("answers with blind signatures", issuance.signatures_from_wire),
        issuer_pb2.IssueTokensResponse(
            responses=[issuer_pb2.IssueTokenResponse(blind_signature=bytes(256))]
        ),
    ),
    (
        *("end and population of a token key", issuance.key_terms_from_wire),
        issuer_pb2.CreateTokenKeyRequest(end=2**33),
        issuer_pb2.CreateTokenKeyRequest(end=2**33, population="staff"),
    ),
    (*("new token key", issuance.TOKENS.from_wire), issuance.TOKENS.to_wire(TOKENS)),
    (
        *("question for a receipt", submissions.receipt_request_from_wire),
        user_agent_pb2.GetReceiptRequest(task_digest=EXAMPLE_DIGEST),
        user_agent_pb2.GetReceiptRequest(task_digest=EXAMPLE_DIGEST, person="Ada"),
    ),
)
"""Names, readers and valid messages."""
_SHARES: Final = {
    "description of a task": 8.0,
    "result": 8.0,
    "draft to a task": 1.0,  # a search for an epsilon each
    "question for a bucket": 4.0,
}

PARSERS: Final = (
    Parser(name="task digest", read=fields.digest_from_wire, seeds=(bytes(32), b"d" * 32)),
    *(message_parser(*one, share=_SHARES.get(one[0], 16.0)) for one in _MESSAGES),
    Parser(
        name="kept result",
        read=results.result_from_bytes,
        seeds=(results.result_to_wire(result(EXAMPLE_DIGEST)).SerializeToString(),),
        form="protobuf",
        share=8,
    ),
    Parser(
        name="commitment kept by the analyzer",
        read=batches.commitment_from_bytes,
        seeds=(_KEPT_COMMITMENT,),
        form="protobuf",
    ),
    *(
        file_parser(
            f"{kind}/proof-{EXAMPLE_DIGEST.hex()}/{kind}",
            _relayed,
            content,
            name=f"{kind} kept by the shuffler",
            share=8,
        )
        for kind, content in _proof_blocks().items()
    ),
)
