"""Convert the log's messages between protocol buffers and values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from shuffledp.common.crypto.hpke import split_every
from shuffledp.common.errors import ProofError, WireError
from shuffledp.common.limits import Rule, parse_bounded, parse_count
from shuffledp.common.transparency.checkpoint import MAX_NOTE_BYTES, NoteSignature, SignedCheckpoint
from shuffledp.common.transparency.log import LogCopy, LogEntry, LogEvidence, LogProof
from shuffledp.common.transparency.merkle import HASH_BYTES, MAX_SIZE, Path
from shuffledp.common.wire.fields import Codec, parse_stored
from shuffledp.protos.shuffledp.v1 import log_pb2, shuffler_pb2, user_agent_pb2

MAX_LEAVES: Final = 1 << 16
"""Maximum number of leaves in one message."""
_MAX_PATH: Final = 128
_MAX_CHECKPOINTS: Final = 17
"""Maximum number of checkpoints of different sizes: one for each number of cosignatures."""


def parse_hashes(name: str, field: bytes, maximum: int = _MAX_PATH) -> tuple[bytes, ...]:
    """Parse concatenated hashes, of a proof by default."""
    if len(field) % HASH_BYTES or len(field) > maximum * HASH_BYTES:
        raise WireError(
            f"{name} has {len(field)} bytes; it must have at most {maximum} hashes of {HASH_BYTES}"
        )
    return tuple(split_every(field, HASH_BYTES))


def checkpoint_to_wire(
    old_size: int, consistency: Path, signed: SignedCheckpoint
) -> log_pb2.AddCheckpointRequest:
    """Encode a request to cosign a checkpoint."""
    return log_pb2.AddCheckpointRequest(
        old_size=old_size, consistency=b"".join(consistency), checkpoint=signed.to_bytes()
    )


def checkpoint_from_wire(
    message: log_pb2.AddCheckpointRequest,
) -> tuple[int, Path, SignedCheckpoint]:
    """Parse a request to cosign: old size, consistency proof from it, and checkpoint."""
    return (
        parse_count("old_size", message.old_size, MAX_SIZE),
        parse_hashes("consistency", message.consistency),
        SignedCheckpoint.parse(message.checkpoint),
    )


def cosignature_to_wire(
    size: int, cosignature: NoteSignature | None
) -> log_pb2.AddCheckpointResponse:
    """Encode a cosignature, or None and the size to prove consistency from."""
    line = cosignature.line().encode() if cosignature else b""
    return log_pb2.AddCheckpointResponse(size=size, cosignature=line)


def cosignature_from_wire(
    message: log_pb2.AddCheckpointResponse,
) -> tuple[int, NoteSignature | None]:
    """Parse a witness's size and, if the request's old size was right, its cosignature."""
    line = parse_bounded("cosignature", message.cosignature, MAX_NOTE_BYTES)
    try:
        text = line.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise WireError("a cosignature must be UTF-8") from error
    size = parse_count("size", message.size, MAX_SIZE)
    return size, NoteSignature.parse(text) if text else None


def log_to_wire(copy: LogCopy, request: log_pb2.GetLogRequest) -> log_pb2.GetLogResponse:
    """Encode the requested page of the log."""
    leaves = b"".join(copy.leaves(request.after, MAX_LEAVES))
    notes = [one.to_bytes() for one in copy.checkpoints]
    return log_pb2.GetLogResponse(leaves=leaves, checkpoints=notes)


def log_from_wire(
    message: log_pb2.GetLogResponse,
) -> tuple[Sequence[bytes], Sequence[SignedCheckpoint]]:
    """Parse a page of the log: leaves and checkpoints."""
    parse_count("the number of checkpoints", len(message.checkpoints), _MAX_CHECKPOINTS)
    notes = [SignedCheckpoint.parse(note) for note in message.checkpoints]
    return parse_hashes("leaves", message.leaves, MAX_LEAVES), notes


_READERS: Final[Mapping[str, Rule]] = {
    "path": parse_hashes,
    "checkpoint": lambda _, note: SignedCheckpoint.parse(note),
}
_WRITERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "path": b"".join,
    "checkpoint": SignedCheckpoint.to_bytes,
}
_PROOF: Final = Codec(
    LogProof,
    log_pb2.LogProof,
    {**_READERS, "consistency": parse_hashes},
    {**_WRITERS, "consistency": b"".join},
)
_EVIDENCE: Final = Codec(
    LogEvidence,
    log_pb2.LogEvidence,
    {**_READERS, "entry": lambda _, entry: LogEntry.from_bytes(entry)},
    {**_WRITERS, "entry": LogEntry.to_bytes},
)
log_proof_to_wire = _PROOF.to_wire


def log_proof_from_wire(message: shuffler_pb2.FetchTaskResponse) -> LogProof:
    """Parse a task's place in the log, unverified; raise ProofError if it is missing."""
    if not message.HasField("log_proof"):
        raise ProofError("the shuffler sent no proof that the task is in the analyzer's log")
    return _PROOF.from_wire(message.log_proof)


def evidence_to_wire(evidence: Sequence[LogEvidence]) -> user_agent_pb2.GetLogEvidenceResponse:
    """Encode a device's evidence."""
    return user_agent_pb2.GetLogEvidenceResponse(evidence=map(_EVIDENCE.to_wire, evidence))


def evidence_from_wire(message: user_agent_pb2.GetLogEvidenceResponse) -> list[LogEvidence]:
    """Parse a device's evidence, unverified."""
    return list(map(_EVIDENCE.from_wire, message.evidence))


def evidence_from_bytes(raw: bytes) -> list[LogEvidence]:
    """Parse a device's stored evidence, perhaps concatenated; raise WireError if damaged."""
    kind = user_agent_pb2.GetLogEvidenceResponse
    return evidence_from_wire(parse_stored(kind, raw, "evidence of the log"))
