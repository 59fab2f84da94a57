"""Receipts, commitments, proofs and sentinels: what is sent of them, and what a shuffler keeps."""

import asyncio
from pathlib import Path
from typing import Final

from analyzer.batch_checks import SentinelMatches, match_sentinels
from analyzer.storage.sentinel_table import Sentinel
from common.crypto.merkle import split
from common.crypto.receipt import receipt_holds, sign_receipt
from common.crypto.signing import SigningIdentity
from common.messages.inclusion_proof import InclusionProof
from common.task_digest import TaskDigest
from common.wire import evidence as wire_evidence
from common.wire import submissions as wire_submissions
from deploy.audit.harness.clock import ManualClock
from protos.shuffledp.v1 import analyzer_pb2, inclusion_pb2, shuffler_pb2, user_agent_pb2
from shuffler.inclusion import InclusionProofs
from tests.support.file_parsers import directory, file_parser
from tests.support.leaves import commitment_over, some_leaves, tree_over
from tests.support.parsers import Parser
from tests.support.wire_parsers import message_parser
from user_agent.evidence import InclusionState
from user_agent.inclusion_monitor import conclusion, counted

_DIGEST: Final = TaskDigest(b"\xd1" * 32)
_IDENTITY: Final = SigningIdentity(bytes(range(32)))
_PINNED: Final = _IDENTITY.public_identity()
_LEAVES: Final = some_leaves(600)  # enough for two buckets
_TREE: Final = tree_over(_LEAVES)
_COMMITMENT: Final = commitment_over(_LEAVES, _IDENTITY, _DIGEST)
_SMALL_TREE: Final = tree_over(some_leaves(3))
_SMALL_COMMITMENT: Final = commitment_over(some_leaves(3), _IDENTITY, _DIGEST)
_PREFIX: Final = _COMMITMENT.prefix_of(_LEAVES[0])
_PROOF: Final = InclusionProof.of(_TREE, _COMMITMENT, _PREFIX)
_SMALL_PROOF: Final = InclusionProof.of(_SMALL_TREE, _SMALL_COMMITMENT, 0)
_UNTIL: Final = (2**40).to_bytes(8)
_REPORT_BYTES: Final = 60


def _acknowledged(message: shuffler_pb2.SubmitResponse) -> bool:
    """Read a receipt as a device does: to whether it holds."""
    return receipt_holds(_PINNED, _DIGEST, b"sealed", wire_submissions.receipt_from_wire(message))


def _checked(message: inclusion_pb2.BatchCommitment) -> None:
    wire_evidence.commitment_from_wire(message).check(_PINNED, _DIGEST)


def _delivered(message: analyzer_pb2.DeliverBatchResponse) -> None:
    """Read the answer to a delivery as the shuffler does before it keeps it."""
    commitment = wire_evidence.delivered_from_wire(message)
    if commitment is not None:
        commitment.check(_PINNED, _DIGEST)


def _concluded(message: shuffler_pb2.GetInclusionResponse) -> InclusionState:
    """Read a proof as a device does: to what it proves of its own leaf."""
    proof = wire_evidence.proof_from_wire(message)
    return conclusion([counted(_LEAVES[0], proof, proof.commitment, _PINNED, _DIGEST)])


def _shown(message: shuffler_pb2.GetInclusionRequest) -> bytes:
    """Read which bucket is asked for as the shuffler does: to the answer."""
    digest, prefix = wire_evidence.prefix_from_wire(message)
    folder = directory() / "asked"
    _lay_out(folder)
    relayed = asyncio.run(_inclusions(folder).relay(digest, prefix))
    return wire_evidence.proof_to_wire(*relayed).SerializeToString()


def _looked_out_for(message: analyzer_pb2.RegisterSentinelsRequest) -> SentinelMatches:
    """Read sentinels as the analyzer does: to those that it finds in a batch."""
    _, sentinels, acknowledged = wire_evidence.sentinels_from_wire(message)
    wanted = [
        Sentinel(leaves=tuple(split(leaves)), acknowledged=acknowledged) for leaves in sentinels
    ]
    return match_sentinels([bytes(3 * _REPORT_BYTES)], _REPORT_BYTES, wanted)


# --- what a shuffler keeps ------------------------------------------------------------------------


def _inclusions(folder: Path) -> InclusionProofs:
    return InclusionProofs(
        directory=folder, identity=_PINNED, keep_seconds=1.0, clock=ManualClock(2.0**39)
    )


def _lay_out(folder: Path) -> None:
    """Put there what is kept of a task, unless it is there."""
    folder.mkdir(exist_ok=True)
    kept = {
        "commitment": _UNTIL + wire_evidence.commitment_to_bytes(_COMMITMENT),
        "leaves": _TREE.leaves.tobytes(),
    }
    for kind, content in kept.items():
        path = folder / f"{_DIGEST.hex()}.{kind}"
        if not path.exists():
            path.write_bytes(content)


def _relayed(path: Path) -> bytes:
    """Show what was kept as the shuffler does, alone and with each bucket, and clear it up."""
    _lay_out(path.parent)
    inclusions = _inclusions(path.parent)
    try:
        relayed = [asyncio.run(inclusions.relay(_DIGEST, prefix)) for prefix in (None, 0)]
        return b"".join(
            wire_evidence.proof_to_wire(*shown).SerializeToString() for shown in relayed
        )
    finally:
        inclusions.delete_expired()


def _kept(name: str, kind: str, seeds: tuple[bytes, ...], *covers: str) -> Parser:
    return file_parser(
        name,
        f"inclusion-{kind}/{_DIGEST.hex()}.{kind}",
        _relayed,
        seeds,
        "binary",
        *covers,
        share=8,
    )


def _kept_by_the_analyzer(raw: bytes) -> bytes:
    commitment = wire_evidence.commitment_from_bytes(raw)
    return wire_evidence.delivered_to_wire(commitment).SerializeToString()


EVIDENCE_PARSERS: Final = (
    message_parser(
        "receipt",
        shuffler_pb2.SubmitResponse,
        _acknowledged,
        [
            shuffler_pb2.SubmitResponse(receipt=sign_receipt(_IDENTITY, _DIGEST, b"sealed")),
            shuffler_pb2.SubmitResponse(repeated=True),
        ],
        "common.wire.submissions.receipt_from_wire",
    ),
    message_parser(
        "commitment",
        inclusion_pb2.BatchCommitment,
        _checked,
        [wire_evidence.commitment_to_wire(_COMMITMENT)],
        "common.wire.evidence.commitment_from_wire",
    ),
    message_parser(
        "answer to a delivery",
        analyzer_pb2.DeliverBatchResponse,
        _delivered,
        [wire_evidence.delivered_to_wire(_COMMITMENT), wire_evidence.delivered_to_wire(None)],
        "common.wire.evidence.delivered_from_wire",
    ),
    message_parser(
        "proof",
        shuffler_pb2.GetInclusionResponse,
        _concluded,
        [
            wire_evidence.proof_to_wire(_PROOF, _TREE.largest_bucket),
            wire_evidence.proof_to_wire(_SMALL_PROOF, _SMALL_TREE.largest_bucket),
        ],
        "common.wire.evidence.proof_from_wire",
        "common.crypto.merkle.prefix_of",
    ),
    message_parser(
        "question for a bucket",
        shuffler_pb2.GetInclusionRequest,
        _shown,
        [
            wire_evidence.prefix_to_wire(_DIGEST, None),
            wire_evidence.prefix_to_wire(_DIGEST, _PREFIX),
        ],
        "common.wire.evidence.prefix_from_wire",
        share=4,
    ),
    message_parser(
        "sentinels",
        analyzer_pb2.RegisterSentinelsRequest,
        _looked_out_for,
        [
            wire_evidence.sentinels_to_wire(_DIGEST, [bytes(64), bytes(32)], acknowledged=False),
            wire_evidence.sentinels_to_wire(_DIGEST, [], acknowledged=True),
        ],
        "common.wire.evidence.sentinels_from_wire",
    ),
    message_parser(
        "question for a receipt",
        user_agent_pb2.GetReceiptRequest,
        wire_submissions.record_question_from_wire,
        [
            user_agent_pb2.GetReceiptRequest(task_digest=_DIGEST),
            user_agent_pb2.GetReceiptRequest(task_digest=_DIGEST, person="Ada"),
        ],
        "common.wire.submissions.record_question_from_wire",
    ),
    Parser(
        name="commitment kept by the analyzer",
        read=_kept_by_the_analyzer,
        seeds=(wire_evidence.commitment_to_bytes(_COMMITMENT),),
        form="protobuf",
        covers=("common.wire.evidence.commitment_from_bytes",),
    ),
    _kept(
        "commitment kept by the shuffler",
        "commitment",
        (_UNTIL + wire_evidence.commitment_to_bytes(_COMMITMENT),),
        "shuffler.inclusion.InclusionProofs._read",
        "shuffler.inclusion.InclusionProofs.delete_expired",
    ),
    _kept(
        "leaves kept by the shuffler",
        "leaves",
        (_TREE.leaves.tobytes(), _SMALL_TREE.leaves.tobytes()),
        "shuffler.inclusion.InclusionProofs._load",
        "shuffler.inclusion.InclusionProofs._read",
    ),
)
