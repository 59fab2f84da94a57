"""
One family of errors: each says whose fault it is by naming the gRPC status its caller sees.

Messages state the rule and the public number that broke it, never a user's value, a report's
content or key bytes.
"""


class ShuffleDpError(Exception):
    """Any failure that the project foresees; `status` is the name of a gRPC status code."""

    status: str = "INTERNAL"


class TaskError(ShuffleDpError):
    """A task, or a draft of one, breaks a rule."""

    status = "INVALID_ARGUMENT"


class UnknownTaskError(ShuffleDpError):
    """No task has this digest."""

    status = "NOT_FOUND"


class SignatureError(ShuffleDpError):
    """A task is not signed by the analyzer's identity that this party has pinned."""

    status = "FAILED_PRECONDITION"


class WireError(ShuffleDpError):
    """A message has a field of the wrong length or out of its range."""

    status = "INVALID_ARGUMENT"


class SealError(ShuffleDpError):
    """A ciphertext does not open. Why it does not is never told apart."""

    status = "INVALID_ARGUMENT"


class KeyFormatError(ShuffleDpError):
    """Bytes that should be a key are not one."""

    status = "INVALID_ARGUMENT"


class UnknownKeyError(ShuffleDpError):
    """A task is sealed to a key that this party does not hold: another's, or destroyed."""

    status = "FAILED_PRECONDITION"


class ReportError(ShuffleDpError):
    """A report is not one that the task's mechanism can make."""

    status = "INVALID_ARGUMENT"


class ValueRangeError(ShuffleDpError):
    """A user's value lies outside the task's domain; the message never repeats the value."""

    status = "INVALID_ARGUMENT"


class PolicyError(ShuffleDpError):
    """The device refuses this task: its promise is too weak, or not what its weights deliver."""

    status = "FAILED_PRECONDITION"


class SubmissionConflictError(ShuffleDpError):
    """A submission id came a second time with other bytes."""

    status = "ALREADY_EXISTS"


class BatchStateError(ShuffleDpError):
    """The batch is not in a state that allows this."""

    status = "FAILED_PRECONDITION"


class BatchConflictError(ShuffleDpError):
    """A second batch arrived for a task: one task is one release."""

    status = "ALREADY_EXISTS"


class ManifestError(ShuffleDpError):
    """A delivered batch does not have the reports that its manifest announces."""

    status = "INVALID_ARGUMENT"


class DeliveryUnderWayError(ShuffleDpError):
    """The same batch is being delivered by another call; try again when that has ended."""

    status = "ABORTED"


class UnusableBatchError(ShuffleDpError):
    """A batch arrived whole and no result can ever be made of it."""

    status = "DATA_LOSS"


class SuspectBatchError(UnusableBatchError):
    """A batch failed a check that an honest shuffler's passes: it is kept, and not estimated."""

    def __init__(self, message: str, *, n_missing: int = 0) -> None:
        """Take the sentence, and how many sentinels are missing that must be there."""
        super().__init__(message)
        self.n_missing = n_missing


class NotReleasedError(ShuffleDpError):
    """The task is known, its result is not there yet."""

    status = "FAILED_PRECONDITION"


class CredentialError(ShuffleDpError):
    """A call that only an operator may make came without a valid operator's token."""

    status = "UNAUTHENTICATED"


class CallerError(ShuffleDpError):
    """A call came from a party that may not make it, by its certificate."""

    status = "PERMISSION_DENIED"


class OverloadError(ShuffleDpError):
    """There is no room for this call at the moment; it may be made again."""

    status = "RESOURCE_EXHAUSTED"


class ShareError(OverloadError):
    """There is room, but this connection has had its share of it; others are served."""


class SideCallError(OverloadError):
    """There is no room for a call on which nobody's answer depends, such as reflection."""


class DeadlineError(ShuffleDpError):
    """A call took longer than calls of its kind may; it may be made again."""

    status = "DEADLINE_EXCEEDED"


class UserTokenError(ShuffleDpError):
    """A submission came without a token of this collection, or with one that is none."""

    status = "UNAUTHENTICATED"


class TokenUsedError(ShuffleDpError):
    """A user's token came a second time for a task, with another submission."""

    status = "ALREADY_EXISTS"


class BudgetError(ShuffleDpError):
    """A release, or an answer, would cost more than what is left to spend."""

    status = "RESOURCE_EXHAUSTED"


class LedgerError(ShuffleDpError):
    """The chain of the analyzer's ledger is broken: an entry was changed, removed or moved."""

    status = "DATA_LOSS"


class PeerError(ShuffleDpError):
    """Another party could not be reached in time; the call may be made again."""

    status = "UNAVAILABLE"


class StorageError(ShuffleDpError):
    """
    This party's own disk is full, read-only or failing. Nothing was stored; the call may be made
    again, and is served when the disk is well.
    """

    status = "UNAVAILABLE"


class DamagedStorageError(StorageError):
    """What this party's disk gives back is not what was stored; nothing is made of it."""


class PeerBusyError(PeerError):
    """Another party has no room for the call at the moment; it may be made again, later."""


class PeerUnableError(PeerError):
    """Another party answers, and says why it cannot serve at the moment, such as a full disk."""


class ReceiptError(PeerError):
    """The shuffler's receipt does not verify: what was sent may not be stored."""


class ProofError(ShuffleDpError):
    """What should prove that a report was received, or was not, proves neither."""

    status = "FAILED_PRECONDITION"


class PlanError(ShuffleDpError):
    """The wishes for a task break a rule, or nothing fits all of them."""

    status = "INVALID_ARGUMENT"


class SettingsError(ShuffleDpError):
    """A process's settings break a rule; it does not start."""

    status = "FAILED_PRECONDITION"


class AccountingError(ShuffleDpError):
    """A guarantee was asked for parameters for which there is none."""

    status = "INVALID_ARGUMENT"


class BoundRangeError(AccountingError):
    """A published theorem was asked outside the range in which it holds."""


class PeerRefusalError(ShuffleDpError):
    """Another party answered with an error; its status is passed on as it came."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status
