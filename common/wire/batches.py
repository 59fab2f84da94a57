"""Convert batches' states and deliveries between protocol buffers and values."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from common.errors import WireError
from common.messages.batch import (
    BATCH_ID_BYTES,
    BatchManifest,
    BatchProgress,
    BatchState,
    BatchStatus,
)
from common.messages.submission import REFUSALS
from common.task.task import MAX_UNIX_TIME, MAX_USERS
from common.wire.fields import Codec, EnumCodec, at_most, count, exactly, whole, word
from protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2

MAX_CHUNK_BYTES: Final = 1024 * 1024
REPORTS_WANTED: Final = (("shuffledp-reports-wanted", "1"),)
"""Initial metadata that asks for the reports of an accepted manifest."""


def _refused(_name: str, field: Mapping[str, int]) -> dict[str, int]:
    return {word("a cause of refusal", cause, REFUSALS): n for cause, n in field.items()}


_STATES: Final = EnumCodec(
    "batch state", BatchState, shuffler_pb2.BatchState.DESCRIPTOR, "BATCH_STATE_"
)
_WRITERS: Final = {"state": _STATES.write}
_STATUS: Final = Codec(
    BatchStatus, shuffler_pb2.GetBatchStatusResponse, {"state": _STATES.read}, _WRITERS
)
_PROGRESS: Final = Codec(
    BatchProgress,
    shuffler_pb2.GetBatchProgressResponse,
    {
        "state": _STATES.read,
        "n_users": partial(count, most=MAX_USERS),
        "n_min": partial(whole, most=MAX_USERS),
        "target_size": partial(whole, most=MAX_USERS),
        "deadline": partial(whole, most=MAX_UNIX_TIME),
        "refused": _refused,
    },
    _WRITERS,
)
_MANIFEST: Final = Codec(
    BatchManifest,
    analyzer_pb2.BatchManifest,
    {
        "batch_id": partial(exactly, length=BATCH_ID_BYTES),
        "n_users": partial(count, most=MAX_USERS),
    },
)
status_to_wire, status_from_wire = _STATUS.to_wire, _STATUS.from_wire
progress_to_wire, progress_from_wire = _PROGRESS.to_wire, _PROGRESS.from_wire


def manifest_to_wire(manifest: BatchManifest) -> analyzer_pb2.DeliverBatchRequest:
    """Encode the first message of a delivery."""
    return analyzer_pb2.DeliverBatchRequest(manifest=_MANIFEST.to_wire(manifest))


def manifest_from_wire(message: analyzer_pb2.DeliverBatchRequest) -> BatchManifest:
    """Parse the first message of a delivery. Run by the analyzer."""
    if message.WhichOneof("part") != "manifest":
        raise WireError("a delivery begins with its manifest")
    return _MANIFEST.from_wire(message.manifest)


def wants_reports(initial_metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Return whether the analyzer asks for the reports after the manifest."""
    return REPORTS_WANTED[0] in list(initial_metadata)  # gRPC's own type looks for keys


def chunk_to_wire(sealed_reports: bytes) -> analyzer_pb2.DeliverBatchRequest:
    """Encode a chunk of sealed reports, which follows the manifest."""
    return analyzer_pb2.DeliverBatchRequest(sealed_reports=sealed_reports)


def chunk_from_wire(message: analyzer_pb2.DeliverBatchRequest) -> bytes:
    """Parse a chunk of sealed reports. Run by the analyzer."""
    if message.WhichOneof("part") != "sealed_reports":
        raise WireError("after its manifest, a delivery holds nothing but sealed reports")
    if not message.sealed_reports:
        raise WireError("sealed_reports has 0 bytes; a chunk holds at least one report")
    return at_most("sealed_reports", message.sealed_reports, MAX_CHUNK_BYTES)
