"""
Where protocol buffers become the project's values: nothing that comes in is read anywhere else.

Lengths are checked here, and ranges that do not depend on a task, so that nothing behind it sees a
malformed field. Values that both sides know are written here too; a request that is no more than
its fields is written where it is sent.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from common.crypto.signing import SIGNATURE_BYTES, SignedTask
from common.crypto.tokens import TOKEN_BYTES
from common.errors import WireError
from common.messages.batch import (
    BATCH_ID_BYTES,
    BatchId,
    BatchManifest,
    BatchProgress,
    BatchState,
    BatchStatus,
)
from common.messages.submission import REFUSALS, Outcome
from common.task.task import (
    MAX_ENVELOPE_BYTES,
    MAX_TASK_BYTES,
    MAX_UNIX_TIME,
    MAX_USERS,
)
from common.task_digest import DIGEST_BYTES, TaskDigest
from common.wire.fields import at_most, count, exactly, whole, word
from protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2, task_pb2

MAX_BULK_ENVELOPES: Final = 2_000
MAX_CHUNK_BYTES: Final = 1024 * 1024
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Largest message that any service takes."""
REPORTS_WANTED: Final = (("shuffledp-reports-wanted", "1"),)
"""Initial metadata of a delivery whose manifest the analyzer has taken."""


def digest_from_wire(field: bytes) -> TaskDigest:
    """Read a task digest."""
    return TaskDigest(exactly("task_digest", field, DIGEST_BYTES))


# --- tasks ---------------------------------------------------------------------------------------


def signed_task_to_wire(signed: SignedTask) -> task_pb2.SignedTask:
    """Write a published task."""
    return task_pb2.SignedTask(task=signed.task_bytes, signature=signed.signature)


def signed_task_from_wire(message: task_pb2.SignedTask) -> SignedTask:
    """Read a published task; the bytes are kept as they came."""
    return SignedTask(
        task_bytes=at_most("task", message.task, MAX_TASK_BYTES),
        signature=exactly("signature", message.signature, SIGNATURE_BYTES),
    )


# --- submissions ---------------------------------------------------------------------------------


def envelope_from_wire(message: shuffler_pb2.SubmitRequest) -> tuple[TaskDigest, bytes, bytes]:
    """Read one submission: task, envelope, and the user's token, empty if none came."""
    envelope = at_most("envelope", message.envelope, MAX_ENVELOPE_BYTES)
    return digest_from_wire(message.task_digest), envelope, _token(message.token)


def envelopes_from_wire(
    message: shuffler_pb2.SubmitBulkRequest,
) -> tuple[TaskDigest, Sequence[bytes], Sequence[bytes]]:
    """Read many submissions: task, envelopes, and no tokens or one each. Run by the shuffler."""
    count, tokens = len(message.envelopes), message.tokens
    if count > MAX_BULK_ENVELOPES:
        raise WireError(f"{count} envelopes in one call; at most {MAX_BULK_ENVELOPES} are read")
    envelopes = list(message.envelopes)  # each look into the message makes new objects
    at_most("envelope", max(envelopes, key=len, default=b""), MAX_ENVELOPE_BYTES)
    if tokens and len(tokens) != len(envelopes):
        raise WireError(f"{len(tokens)} tokens for {len(envelopes)} envelopes; give none, or each")
    return digest_from_wire(message.task_digest), envelopes, [_token(one) for one in tokens]


def _token(field: bytes) -> bytes:
    return exactly("token", field, TOKEN_BYTES) if field else b""


_OUTCOMES: Final = {
    Outcome.STORED: shuffler_pb2.SUBMISSION_OUTCOME_STORED,
    Outcome.REPEATED: shuffler_pb2.SUBMISSION_OUTCOME_REPEATED,
    Outcome.CONFLICT: shuffler_pb2.SUBMISSION_OUTCOME_CONFLICT,
    Outcome.CLOSED: shuffler_pb2.SUBMISSION_OUTCOME_CLOSED,
    Outcome.MALFORMED: shuffler_pb2.SUBMISSION_OUTCOME_MALFORMED,
    Outcome.TOKEN_USED: shuffler_pb2.SUBMISSION_OUTCOME_TOKEN_USED,
    Outcome.UNAUTHENTICATED: shuffler_pb2.SUBMISSION_OUTCOME_UNAUTHENTICATED,
}
_OUTCOME_NUMBERS: Final = {number: outcome for outcome, number in _OUTCOMES.items()}


def outcomes_to_wire(
    outcomes: Sequence[Outcome], receipt: bytes = b""
) -> shuffler_pb2.SubmitBulkResponse:
    """Write what became of each submission, and the receipt for all that are stored."""
    numbers = [_OUTCOMES[outcome] for outcome in outcomes]
    return shuffler_pb2.SubmitBulkResponse(outcomes=numbers, receipt=receipt)


def outcomes_from_wire(message: shuffler_pb2.SubmitBulkResponse) -> list[Outcome]:
    """Read what became of each submission."""
    try:
        return [_OUTCOME_NUMBERS[number] for number in message.outcomes]
    except KeyError as error:
        raise WireError(f"outcome {error} is not one that this program knows") from error


_STATES: Final = {
    BatchState.COLLECTING: shuffler_pb2.BATCH_STATE_COLLECTING,
    BatchState.CLOSED: shuffler_pb2.BATCH_STATE_CLOSED,
    BatchState.PERMUTED: shuffler_pb2.BATCH_STATE_PERMUTED,
    BatchState.DELIVERED: shuffler_pb2.BATCH_STATE_DELIVERED,
    BatchState.ERASED: shuffler_pb2.BATCH_STATE_ERASED,
    BatchState.EXPIRED: shuffler_pb2.BATCH_STATE_EXPIRED,
    BatchState.QUARANTINED: shuffler_pb2.BATCH_STATE_QUARANTINED,
}
_STATE_NUMBERS: Final = {number: state for state, number in _STATES.items()}


def status_to_wire(status: BatchStatus) -> shuffler_pb2.GetBatchStatusResponse:
    """Write a batch's status."""
    return shuffler_pb2.GetBatchStatusResponse(
        state=_STATES[status.state],
        n_users=status.n_users,
        n_min=status.n_min,
        shuffle_seconds=status.shuffle_seconds,
    )


def status_from_wire(message: shuffler_pb2.GetBatchStatusResponse) -> BatchStatus:
    """Read a batch's status."""
    if message.state not in _STATE_NUMBERS:
        raise WireError(f"batch state {message.state} is not one that this program knows")
    return BatchStatus(
        state=_STATE_NUMBERS[message.state],
        n_users=message.n_users,
        n_min=message.n_min,
        shuffle_seconds=message.shuffle_seconds,
    )


def progress_to_wire(progress: BatchProgress) -> shuffler_pb2.GetBatchProgressResponse:
    """Write how far a batch is."""
    return shuffler_pb2.GetBatchProgressResponse(
        state=_STATES[progress.state],
        n_users=progress.n_users,
        n_min=progress.n_min,
        target_size=progress.target_size,
        deadline=progress.deadline,
        refused=progress.refused,
        repeated=progress.repeated,
    )


def progress_from_wire(message: shuffler_pb2.GetBatchProgressResponse) -> BatchProgress:
    """Read how far a batch is."""
    if message.state not in _STATE_NUMBERS:
        raise WireError(f"batch state {message.state} is not one that this program knows")
    return BatchProgress(
        state=_STATE_NUMBERS[message.state],
        n_users=count("n_users", message.n_users, MAX_USERS),
        n_min=whole("n_min", message.n_min, MAX_USERS),
        target_size=whole("target_size", message.target_size, MAX_USERS),
        deadline=whole("deadline", message.deadline, MAX_UNIX_TIME),
        refused={
            word("a cause of refusal", cause, REFUSALS): n for cause, n in message.refused.items()
        },
        repeated=message.repeated,
    )


# --- delivery ------------------------------------------------------------------------------------


def manifest_to_wire(manifest: BatchManifest) -> analyzer_pb2.DeliverBatchRequest:
    """Write the first message of a delivery."""
    return analyzer_pb2.DeliverBatchRequest(
        manifest=analyzer_pb2.BatchManifest(
            task_digest=manifest.task_digest,
            batch_id=manifest.batch_id,
            n_users=manifest.n_users,
            n_reports=manifest.n_reports,
        )
    )


def manifest_from_wire(message: analyzer_pb2.DeliverBatchRequest) -> BatchManifest:
    """Read the first message of a delivery. Run by the analyzer."""
    if message.WhichOneof("part") != "manifest":
        raise WireError("a delivery begins with its manifest")
    manifest = message.manifest
    return BatchManifest(
        task_digest=digest_from_wire(manifest.task_digest),
        batch_id=BatchId(exactly("batch_id", manifest.batch_id, BATCH_ID_BYTES)),
        n_users=count("n_users", manifest.n_users, MAX_USERS),
        n_reports=manifest.n_reports,
    )


def wants_reports(initial_metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Tell whether the analyzer, which has the manifest, asks for the reports. By the shuffler."""
    return REPORTS_WANTED[0] in list(initial_metadata)  # gRPC's own type looks for keys


def chunk_to_wire(sealed_reports: bytes) -> analyzer_pb2.DeliverBatchRequest:
    """Write a further message of a delivery."""
    return analyzer_pb2.DeliverBatchRequest(sealed_reports=sealed_reports)


def chunk_from_wire(message: analyzer_pb2.DeliverBatchRequest) -> bytes:
    """Read a further message of a delivery. Run by the analyzer."""
    if message.WhichOneof("part") != "sealed_reports":
        raise WireError("after its manifest a delivery holds nothing but sealed reports")
    if not message.sealed_reports:
        raise WireError("sealed_reports has 0 bytes; a chunk holds at least one report")
    return at_most("sealed_reports", message.sealed_reports, MAX_CHUNK_BYTES)
