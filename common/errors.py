"""
One family of errors: each says whose fault it is by naming the gRPC status its caller sees.

A class exists where a caller acts on it: catches it, maps it, or tells its status from others'.
Messages state the rule and the public number that broke it, never a user's value, a report's
content or key bytes.
"""


class ShuffleDpError(Exception):
    """Any failure that the project foresees; `status` is the name of a gRPC status code."""

    status: str = "INTERNAL"

    def __init_subclass__(cls, *, status: str | None = None) -> None:
        """Take the status of a class beside its name; without one it has its base's."""
        super().__init_subclass__()
        cls.status = status or cls.status


class TaskError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """A task, or a draft of one, breaks a rule."""


class WireError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """
    Bytes from outside are malformed: a message, a delivery, a key, or a ciphertext.

    A ciphertext that does not open never says why.
    """


class ReportError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """A report is not one that the task's mechanism can make."""


class ValueRangeError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """A user's value lies outside the task's domain; the message never repeats the value."""


class PlanError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """The requirements for a task break a rule, or nothing fits all of them."""


class AccountingError(ShuffleDpError, status="INVALID_ARGUMENT"):
    """A guarantee was asked for parameters for which there is none."""


class BoundRangeError(AccountingError):
    """A published theorem was asked outside the range in which it holds."""


class SettingsError(ShuffleDpError, status="FAILED_PRECONDITION"):
    """A process's settings break a rule; it does not start."""


class ProofError(ShuffleDpError, status="FAILED_PRECONDITION"):
    """A task's signature does not verify, or a proof shows neither that a report came nor not."""


class PolicyError(ShuffleDpError, status="FAILED_PRECONDITION"):
    """The device refuses this task: its promise is too weak, or not what its weights deliver."""


class UnknownKeyError(ShuffleDpError, status="FAILED_PRECONDITION"):
    """A task is sealed to a key that this party does not hold: another's, or destroyed."""


class CredentialError(ShuffleDpError, status="UNAUTHENTICATED"):
    """A call or a submission came without the token that it needs, or with a wrong one."""


class CallerError(ShuffleDpError, status="PERMISSION_DENIED"):
    """A call came from a party that may not make it, by its certificate."""


class UnknownTaskError(ShuffleDpError, status="NOT_FOUND"):
    """No task has this digest."""


class BatchStateError(ShuffleDpError, status="FAILED_PRECONDITION"):
    """The batch is not in a state that allows this; its result may not be there yet."""


class ConflictError(ShuffleDpError, status="ALREADY_EXISTS"):
    """What may come once came again and differs: a submission id, or a task's batch."""


class TokenUsedError(ConflictError):
    """A user's token came a second time for a task, with another submission."""


class DeliveryUnderWayError(ShuffleDpError, status="ABORTED"):
    """Another call is delivering the same batch; retry when it has ended."""


class UnusableBatchError(ShuffleDpError, status="DATA_LOSS"):
    """A batch arrived whole and no result can ever be made of it."""


class SuspectBatchError(UnusableBatchError):
    """A batch failed a check that an honest shuffler's passes: it is kept, and not estimated."""

    def __init__(self, message: str, *, n_missing: int = 0) -> None:
        """Take the sentence, and the number of required sentinels that are missing."""
        super().__init__(message)
        self.n_missing = n_missing


class BudgetError(ShuffleDpError, status="RESOURCE_EXHAUSTED"):
    """A release, or an answer, would cost more than what is left to spend."""


class LedgerError(ShuffleDpError, status="DATA_LOSS"):
    """The chain of the analyzer's ledger is broken: an entry was changed, removed or moved."""


class OverloadError(ShuffleDpError, status="RESOURCE_EXHAUSTED"):
    """There is no room for this call at the moment; retry later."""


class ShareError(OverloadError):
    """This connection, or a minor kind of call, has used its share; the service has room."""


class DeadlineError(ShuffleDpError, status="DEADLINE_EXCEEDED"):
    """A call took longer than calls of its kind may; safe to retry."""


class StorageError(ShuffleDpError, status="UNAVAILABLE"):
    """This party's own disk is full, read-only or failing. Nothing was stored; safe to retry."""


class DamagedStorageError(StorageError):
    """What this party's disk gives back is not what was stored; nothing is made of it."""


class PeerError(ShuffleDpError, status="UNAVAILABLE"):
    """Another party did not answer in time, or its answer is worthless; safe to retry."""


class PeerBusyError(PeerError):
    """Another party has no room for the call at the moment; retry later."""


class PeerUnableError(PeerError):
    """Another party answers that it cannot serve at the moment, for example for a full disk."""


class PeerRefusalError(ShuffleDpError):
    """Another party answered with an error; its status is passed on as it came."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status
