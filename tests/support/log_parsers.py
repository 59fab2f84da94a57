"""Parsers of the log's messages, and of files about it."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToJson

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.crypto.signing import PublicIdentity, SignedTask, SigningIdentity
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.witness_service import WitnessServicer
from shuffledp.common.transparency.growth import Growth
from shuffledp.common.transparency.log import EntryKind, LogCopy, LogEntry, find_fork
from shuffledp.common.transparency.merkle import LogTree
from shuffledp.common.wire import transparency
from shuffledp.common.wire.added_entries import growth_from_wire, growth_to_wire
from shuffledp.common.wire.tasks import task_question_from_wire
from shuffledp.deploy.commands.log import read_evidence
from shuffledp.protos.shuffledp.v1 import log_pb2, shuffler_pb2, user_agent_pb2
from tests.support.parsers import Parser, file_parser, message_parser
from tests.support.transparency import LOG, Log, task_entry

_LOG: Final = Log([task_entry(number) for number in range(5)])
_EVIDENCE: Final = [_LOG.proof(3, signed=_LOG.cosigned()), replace(_LOG.proof(3, 4), refused=True)]


def log_copy(log: Log) -> LogCopy:
    """Return a copy of a log, with its newest head, cosigned."""
    copy = LogCopy()
    copy.extend(log.leaves)
    copy.serve([log.cosigned()])
    return copy


_COPY: Final = log_copy(_LOG)
_PROOF: Final = _COPY.prove(_LOG.entries[2], 3)  # type: ignore[arg-type]  # an entry
assert _PROOF is not None


def _copied(message: log_pb2.GetLogResponse) -> LogCopy:
    leaves, checkpoints = transparency.log_from_wire(message)
    copy = LogCopy()
    copy.extend(leaves)
    copy.serve(checkpoints)
    return copy


def _restarted(path: Path) -> WitnessServicer:
    """Start a witness on a file that may be damaged."""
    pinned: PublicIdentity = SigningIdentity(bytes(32)).public_identity()
    state = StateDirectory.open(path.parent)
    return WitnessServicer(state, pinned, "witness", ManualClock())


_TASK: Final = SignedTask(task_bytes=b"{}", signature=bytes(64))
_KEY: Final = LogEntry(EntryKind.ISSUER_KEY, SigningIdentity(bytes(32)).public_identity().raw)
_GROWTH: Final = Growth(
    old_size=5,
    subtrees=LogTree(_LOG.leaves).full_subtrees(5),
    checkpoint=Log([*_LOG.entries, LogEntry.of_task(_TASK), _KEY]).head(),
    entries=(LogEntry.of_task(_TASK), _KEY),
    tasks=(_TASK.task_bytes,),
)


def _proved(message: log_pb2.AddEntriesRequest) -> None:
    """Parse a request, and check that its entries are the log's."""
    growth = growth_from_wire(message)
    head = growth.checkpoint.checkpoint
    growth.verify(5, _LOG.head().checkpoint.root, head.size, head.root)


_STATE_FILE: Final = (
    f"witness/witness-{SigningIdentity(bytes(32)).public_identity().raw.hex()[:16]}.checkpoint"
)
_MESSAGES: Final[tuple[tuple[Any, ...], ...]] = (
    (
        *("request to cosign", transparency.checkpoint_from_wire),
        transparency.checkpoint_to_wire(3, _LOG.consistency(3), _LOG.head()),
    ),
    (
        *("cosignature", transparency.cosignature_from_wire),
        transparency.cosignature_to_wire(5, _LOG.cosigned().signatures[1]),
        transparency.cosignature_to_wire(3, None),
    ),
    ("request to check entries", _proved, growth_to_wire(_GROWTH)),
    ("log", _copied, transparency.log_to_wire(_COPY, log_pb2.GetLogRequest())),
    (
        *("question for a task", task_question_from_wire),
        shuffler_pb2.FetchTaskRequest(task_digest=bytes(32), log_size=3),
        shuffler_pb2.FetchTaskRequest(task_digest=bytes(32)),
    ),
    (
        *("place in the log", transparency.log_proof_from_wire),
        shuffler_pb2.FetchTaskResponse(log_proof=transparency.log_proof_to_wire(_PROOF)),
    ),
    (
        "evidence",
        lambda message: find_fork(transparency.evidence_from_wire(message), LOG),
        transparency.evidence_to_wire(_EVIDENCE),
        user_agent_pb2.GetLogEvidenceResponse(),
    ),
)
PARSERS: Final[tuple[Parser, ...]] = (
    Parser(
        name="stored evidence",
        read=transparency.evidence_from_bytes,
        seeds=(transparency.evidence_to_wire(_EVIDENCE).SerializeToString(),),
        form="protobuf",
        message="GetLogEvidenceResponse",
    ),
    *(message_parser(*one) for one in _MESSAGES),
    file_parser(
        "evidence.json",
        read_evidence,
        MessageToJson(transparency.evidence_to_wire(_EVIDENCE)).encode(),
        form="json",
        share=4,
    ),
    file_parser(_STATE_FILE, _restarted, _LOG.head().checkpoint.text(), form="text", share=1),
)
