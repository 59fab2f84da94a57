"""
One family of errors: each says whose fault it is by naming the gRPC status its caller sees.

A class exists where a caller acts on it: catches it, maps it, or tells its status from others'.
Messages state the rule and the public number that broke it, never a user's value, a report's
content or key bytes.
"""


class ShuffleDpError(Exception):
    """Any failure that the project foresees; `status` is the name of a gRPC status code."""

    status: str = "INTERNAL"


class TaskError(ShuffleDpError):
    """A task, or a draft of one, breaks a rule."""

    status = "INVALID_ARGUMENT"


class WireError(ShuffleDpError):
    """
    Bytes from outside are malformed: a message, a delivery, a key, or a ciphertext.

    A ciphertext that does not open never says why.
    """

    status = "INVALID_ARGUMENT"


class ReportError(ShuffleDpError):
    """A report is not one that the task's mechanism can make."""

    status = "INVALID_ARGUMENT"


class ValueRangeError(ShuffleDpError):
    """A user's value lies outside the task's domain; the message never repeats the value."""

    status = "INVALID_ARGUMENT"


class PlanError(ShuffleDpError):
    """The requirements for a task break a rule, or nothing fits all of them."""

    status = "INVALID_ARGUMENT"


class AccountingError(ShuffleDpError):
    """A guarantee was asked for parameters for which there is none."""

    status = "INVALID_ARGUMENT"


class BoundRangeError(AccountingError):
    """A published theorem was asked outside the range in which it holds."""


class SettingsError(ShuffleDpError):
    """A process's settings break a rule; it does not start."""

    status = "FAILED_PRECONDITION"


class ProofError(ShuffleDpError):
    """A task's signature does not verify, or a proof shows neither that a report came nor not."""

    status = "FAILED_PRECONDITION"


class PolicyError(ShuffleDpError):
    """The device refuses this task: its promise is too weak, or not what its weights deliver."""

    status = "FAILED_PRECONDITION"


class UnknownKeyError(ShuffleDpError):
    """A task is sealed to a key that this party does not hold: another's, or destroyed."""

    status = "FAILED_PRECONDITION"


class CredentialError(ShuffleDpError):
    """A call or a submission came without the token that it needs, or with a wrong one."""

    status = "UNAUTHENTICATED"


class CallerError(ShuffleDpError):
    """A call came from a party that may not make it, by its certificate."""

    status = "PERMISSION_DENIED"


class UnknownTaskError(ShuffleDpError):
    """No task has this digest."""

    status = "NOT_FOUND"


class BatchStateError(ShuffleDpError):
    """The batch is not in a state that allows this; its result may not be there yet."""

    status = "FAILED_PRECONDITION"


class ConflictError(ShuffleDpError):
    """What may come once came again and differs: a submission id, or a task's batch."""

    status = "ALREADY_EXISTS"


class TokenUsedError(ConflictError):
    """A user's token came a second time for a task, with another submission."""


class DeliveryUnderWayError(ShuffleDpError):
    """Another call is delivering the same batch; retry when it has ended."""

    status = "ABORTED"


class UnusableBatchError(ShuffleDpError):
    """A batch arrived whole and no result can ever be made of it."""

    status = "DATA_LOSS"


class SuspectBatchError(UnusableBatchError):
    """A batch failed a check that an honest shuffler's passes: it is kept, and not estimated."""

    def __init__(self, message: str, *, n_missing: int = 0) -> None:
        """Take the sentence, and the number of required sentinels that are missing."""
        super().__init__(message)
        self.n_missing = n_missing


class BudgetError(ShuffleDpError):
    """A release, or an answer, would cost more than what is left to spend."""

    status = "RESOURCE_EXHAUSTED"


class LedgerError(ShuffleDpError):
    """The chain of the analyzer's ledger is broken: an entry was changed, removed or moved."""

    status = "DATA_LOSS"


class OverloadError(ShuffleDpError):
    """There is no room for this call at the moment; retry later."""

    status = "RESOURCE_EXHAUSTED"


class ShareError(OverloadError):
    """This connection, or a minor kind of call, has used its share; the service has room."""


class DeadlineError(ShuffleDpError):
    """A call took longer than calls of its kind may; safe to retry."""

    status = "DEADLINE_EXCEEDED"


class StorageError(ShuffleDpError):
    """This party's own disk is full, read-only or failing. Nothing was stored; safe to retry."""

    status = "UNAVAILABLE"


class DamagedStorageError(StorageError):
    """What this party's disk gives back is not what was stored; nothing is made of it."""


class PeerError(ShuffleDpError):
    """Another party did not answer in time, or its answer is worthless; safe to retry."""

    status = "UNAVAILABLE"


class PeerBusyError(PeerError):
    """Another party has no room for the call at the moment; retry later."""


class PeerUnableError(PeerError):
    """Another party answers that it cannot serve at the moment, for example for a full disk."""


class PeerRefusalError(ShuffleDpError):
    """Another party answered with an error; its status is passed on as it came."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status
