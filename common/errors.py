"""
The project's errors, each with the gRPC status that its caller sees.

Each class exists because a caller handles it differently. Messages state the rule and the public
number that broke it, never a user's value, a report's content or key bytes.
"""


class ShuffleDpError(Exception):
    """Base of all expected failures; `status` is the name of a gRPC status code."""

    status: str = "INTERNAL"

    def __init_subclass__(cls, *, status: str | None = None) -> None:
        """Set the class's status; by default, inherit it."""
        super().__init_subclass__()
        cls.status = status or cls.status


class TaskError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """A task, or a draft of one, breaks a rule."""


class WireError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """
    Bytes from outside are malformed: a message, a delivery, a key, or a ciphertext.

    The error for a ciphertext that does not open never names the cause.
    """


class ReportError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """A report is not one that the task's mechanism can produce."""


class ValueRangeError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """A user's value lies outside the task's domain; the message never repeats the value."""


class PlanError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """The requirements for a task break a rule, or no task meets all of them."""


class AccountingError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """No guarantee exists for the parameters."""


class BoundRangeError(AccountingError):
    """The parameters are outside the range of a published theorem."""


class SettingsError(ShuffleDpError, status="FAILED_PRECONDITION"):
    """A setting, or a file that it names, breaks a rule."""


class UsageError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """A command's options break a rule."""


class ArgumentError(UsageError, ValueError):
    """An argument of a function for notebooks breaks a rule."""


class ArgumentTypeError(UsageError, TypeError):
    """An argument of a function for notebooks has a type that cannot be used."""


class ProofError(ShuffleDpError, status="FAILED_PRECONDITION"):
    """A task's or a blind signature does not verify, or an inclusion proof is invalid."""


class PolicyError(ShuffleDpError, status="FAILED_PRECONDITION"):
    """A task's deadline, question, claims or weights break the device's policy."""


class UnknownKeyError(ShuffleDpError, status="FAILED_PRECONDITION"):
    """A task names a key that this party never had or has destroyed, or that has ended."""


class CredentialError(ShuffleDpError, status="UNAUTHENTICATED"):
    """The required token or credential of a call or a submission is missing or wrong."""


class CallerError(ShuffleDpError, status="PERMISSION_DENIED"):
    """The caller's certificate names a party that may not make this call."""


class UnknownTaskError(ShuffleDpError, status="NOT_FOUND"):
    """No task has this digest."""


class UnknownJobError(ShuffleDpError, status="NOT_FOUND"):
    """No part of the job runs now; a worker of an engine came too late."""


class BatchStateError(ShuffleDpError, status="FAILED_PRECONDITION"):
    """The batch's state does not allow this call; for example, there is no result yet."""


class ConflictError(ShuffleDpError, status="ALREADY_EXISTS"):
    """A submission id, a task's batch or a person's token came again, with different content."""


class TokenUsedError(ConflictError):
    """A user's token was already used for another submission to this task."""


class DeliveryUnderWayError(ShuffleDpError, status="ABORTED"):
    """Another call is delivering the same batch; retry when that call ends."""


class UnusableBatchError(ShuffleDpError, status="DATA_LOSS"):
    """A complete batch can never be released."""


class SuspectBatchError(UnusableBatchError):
    """A batch failed a check; it waits for the operator's decision."""

    def __init__(self, message: str, *, n_missing: int = 0) -> None:
        """Store the message and the number of missing sentinels."""
        super().__init__(message)
        self.n_missing = n_missing


class BudgetError(ShuffleDpError, status="RESOURCE_EXHAUSTED"):
    """A release, an answer or a token would exceed a budget."""


class LedgerError(ShuffleDpError, status="DATA_LOSS"):
    """The chain of the analyzer's ledger is broken: an entry was changed, removed or moved."""


class OverloadError(ShuffleDpError, status="RESOURCE_EXHAUSTED"):
    """The service is overloaded; retry later."""


class ShareError(OverloadError):
    """A connection or address, or a minor kind of call, has reached its share; no overload."""


class ConnectionLimitError(ShuffleDpError, status="UNAVAILABLE"):
    """A connection, or an address behind a proxy, has reached its limit of submissions."""


class DeadlineError(ShuffleDpError, status="DEADLINE_EXCEEDED"):
    """A call exceeded the time limit of its kind; safe to retry."""


class StorageError(ShuffleDpError, status="UNAVAILABLE"):
    """This party's own disk is full, read-only or failing; safe to retry."""


class DamagedStorageError(StorageError):
    """Data on this party's disk is damaged and cannot be used."""


class PeerError(ShuffleDpError, status="UNAVAILABLE"):
    """Another party did not answer in time, or its answer is invalid; safe to retry."""


class PeerBusyError(PeerError):
    """Another party is overloaded; retry later."""


class PeerUnableError(PeerError):
    """Another party is temporarily unable to serve, for example because its disk is full."""


class ForeignReplyError(PeerError):
    """A proxy, or another program or version, refused the call; retrying seldom helps."""


class EngineAwayError(ShuffleDpError, status="UNAVAILABLE"):
    """The engine that runs a batch's parts does not answer, has no workers, or loses parts."""


class PeerRefusalError(ShuffleDpError):
    """Another party refused the call; the status of the refusal is passed on."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status
