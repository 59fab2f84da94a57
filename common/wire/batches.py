"""
Convert the messages about a batch between protocol buffers and values: its state, delivery,
commitment, inclusion proofs and sentinels.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from shuffledp.common import errors, limits
from shuffledp.common.messages import batch, inclusion_proof, submission
from shuffledp.common.messages.batch import BatchManifest, BatchPart, BatchState
from shuffledp.common.messages.inclusion_proof import HASH_BYTES, BatchCommitment, InclusionProof
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire import fields
from shuffledp.protos.shuffledp.v1 import analyzer_pb2, inclusion_pb2, shuffler_pb2

MAX_CHUNK_BYTES: Final = 1024 * 1024
REPORTS_WANTED: Final = (("shuffledp-reports-wanted", "1"),)
"""Initial metadata that asks for the reports of an accepted part."""


_STATES: Final = fields.EnumCodec(BatchState, shuffler_pb2.BatchState.DESCRIPTOR)
_STATUS: Final = fields.Codec(batch.BatchStatus, shuffler_pb2.GetBatchStatusResponse)
_PROGRESS: Final = fields.Codec(
    batch.BatchProgress,
    shuffler_pb2.GetBatchProgressResponse,
    {"refused": partial(limits.parse_refused, causes=submission.REFUSALS)},
)
_MANIFEST: Final = fields.Codec(BatchManifest, analyzer_pb2.BatchManifest)
_PART: Final = fields.Codec(BatchPart, analyzer_pb2.BatchPart)
status_to_wire, status_from_wire = _STATUS.to_wire, _STATUS.from_wire
progress_to_wire, progress_from_wire = _PROGRESS.to_wire, _PROGRESS.from_wire


def dropped_to_wire(state: BatchState) -> shuffler_pb2.DropBatchResponse:
    """Encode a dropped batch's last state."""
    return shuffler_pb2.DropBatchResponse(state=_STATES.to_wire(state))


def dropped_from_wire(message: shuffler_pb2.DropBatchResponse) -> BatchState:
    """Parse a dropped batch's last state."""
    return _STATES("state", message.state)


def delivery_to_wire(manifest: BatchManifest, n_parts: int) -> analyzer_pb2.BeginDeliveryRequest:
    """Encode the announcement of a delivery."""
    return analyzer_pb2.BeginDeliveryRequest(manifest=_MANIFEST.to_wire(manifest), n_parts=n_parts)


def delivery_from_wire(message: analyzer_pb2.BeginDeliveryRequest) -> tuple[BatchManifest, int]:
    """Parse the announcement of a delivery: manifest, number of parts. Run by the analyzer."""
    manifest = _MANIFEST.from_wire(message.manifest)
    return manifest, limits.parse_positive("n_parts", message.n_parts, batch.MAX_PARTS)


def arrived_from_wire(message: analyzer_pb2.BeginDeliveryResponse) -> tuple[set[int], bool]:
    """Parse the parts that have arrived, and whether the batch is staged."""
    return set(message.arrived), message.staged


def part_to_wire(part: BatchPart) -> analyzer_pb2.DeliverPartRequest:
    """Encode the first message of a part's delivery."""
    return analyzer_pb2.DeliverPartRequest(part=_PART.to_wire(part))


def part_from_wire(message: analyzer_pb2.DeliverPartRequest) -> BatchPart:
    """Parse the first message of a part's delivery. Run by the analyzer."""
    if message.WhichOneof("message") != "part":
        raise errors.WireError("the delivery of a part must begin with its header")
    return _PART.from_wire(message.part)


def wants_reports(initial_metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Return whether the analyzer asks for the reports after a part's header."""
    return REPORTS_WANTED[0] in list(initial_metadata)  # gRPC's type searches only its keys


def chunk_from_wire(message: analyzer_pb2.DeliverPartRequest) -> bytes:
    """Parse a chunk of sealed reports. Run by the analyzer."""
    if message.WhichOneof("message") != "sealed_reports":
        raise errors.WireError("after its header, a part must contain only sealed reports")
    if not message.sealed_reports:
        raise errors.WireError("sealed_reports has 0 bytes; a chunk must hold at least one report")
    return limits.parse_bounded("sealed_reports", message.sealed_reports, MAX_CHUNK_BYTES)


MAX_SENTINELS: Final = 10_000
"""Maximum number of sentinels in one call."""
_PART_BYTES: Final = fields.MAX_MESSAGE_BYTES // 2
"""Maximum bytes of one call's sentinels, so that they arrive in time over a slow connection."""
_FIELD_BYTES: Final = 8
"""Maximum overhead of each sentinel on the wire."""
_COUNT_BYTES: Final = 4


_COMMITMENT: Final = fields.Codec(BatchCommitment, inclusion_pb2.BatchCommitment)
commitment_to_wire, commitment_from_wire = _COMMITMENT.to_wire, _COMMITMENT.from_wire
"""Convert a commitment; a caller that parses one must verify its signature."""


def commitment_from_bytes(stored: bytes) -> BatchCommitment:
    """Parse a stored commitment; raise WireError if it is damaged."""
    return commitment_from_wire(
        fields.parse_stored(inclusion_pb2.BatchCommitment, stored, "commitment of this batch")
    )


def prefix_to_wire(digest: TaskDigest, prefix: int | None) -> shuffler_pb2.GetInclusionRequest:
    """Encode a request for a bucket, or for the commitment alone if `prefix` is None."""
    number = b"" if prefix is None else prefix.to_bytes(inclusion_proof.PREFIX_BYTES)
    return shuffler_pb2.GetInclusionRequest(task_digest=digest, prefix=number)


def prefix_from_wire(message: shuffler_pb2.GetInclusionRequest) -> tuple[TaskDigest, int | None]:
    """Parse a request: task, and bucket or None (the commitment alone). Run by the shuffler."""
    digest = fields.digest_from_wire(message.task_digest)
    if not message.prefix:
        return digest, None
    number = limits.parse_fixed("prefix", message.prefix, inclusion_proof.PREFIX_BYTES)
    return digest, int.from_bytes(number)


def proof_to_wire(
    relayed: BatchCommitment | InclusionProof, room: int
) -> shuffler_pb2.GetInclusionResponse:
    """Encode a commitment, or a proof padded to `room` leaves, the size of the fullest bucket."""
    if isinstance(relayed, BatchCommitment):
        return shuffler_pb2.GetInclusionResponse(commitment=commitment_to_wire(relayed))
    n_leaves = len(relayed.bucket) // HASH_BYTES
    bucket = n_leaves.to_bytes(_COUNT_BYTES) + relayed.bucket
    return shuffler_pb2.GetInclusionResponse(
        commitment=commitment_to_wire(relayed.commitment),
        bucket=bucket.ljust(_COUNT_BYTES + room * HASH_BYTES, b"\0"),
        path=b"".join(relayed.path),
    )


def proof_from_wire(message: shuffler_pb2.GetInclusionResponse) -> InclusionProof:
    """Parse a proof; the caller verifies it."""
    commitment = commitment_from_wire(message.commitment)
    padded = limits.parse_bounded("bucket", message.bucket, fields.MAX_MESSAGE_BYTES)
    n_leaves, leaves = int.from_bytes(padded[:_COUNT_BYTES]), padded[_COUNT_BYTES:]
    if n_leaves * HASH_BYTES > len(leaves):
        raise errors.WireError(
            f"a bucket of {n_leaves} leaves has {len(leaves)} bytes; a leaf has {HASH_BYTES}"
        )
    path = limits.parse_bounded("path", message.path, inclusion_proof.MAX_BITS * HASH_BYTES)
    steps, bucket = inclusion_proof.split(path), leaves[: n_leaves * HASH_BYTES]
    return InclusionProof(commitment=commitment, bucket=bucket, path=steps)


def sentinel_parts(sentinels: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Split sentinels, each given as its concatenated leaves, into one part per call."""
    start, size = 0, 0
    for index, leaves in enumerate(sentinels):
        size += len(leaves) + _FIELD_BYTES
        if size > _PART_BYTES or index - start == MAX_SENTINELS:
            yield sentinels[start:index]
            start, size = index, len(leaves) + _FIELD_BYTES
    if start < len(sentinels):
        yield sentinels[start:]


def sentinels_from_wire(
    message: analyzer_pb2.RegisterSentinelsRequest,
) -> tuple[TaskDigest, list[bytes], bool]:
    """Parse sentinels: task, each one's leaves, whether acknowledged. Run by the analyzer."""
    limits.parse_count("the number of sentinels", len(message.sentinels), MAX_SENTINELS)
    for leaves in message.sentinels:
        if not leaves or len(leaves) % HASH_BYTES:
            raise errors.WireError(
                f"a sentinel has {len(leaves)} bytes of leaves; each leaf has {HASH_BYTES}"
            )
    digest = fields.digest_from_wire(message.task_digest)
    return digest, list(message.sentinels), message.acknowledged
