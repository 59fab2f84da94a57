"""The small agreed values that travel between user agent, shuffler and analyzer."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NewType

from common.hpke import TaskDigest

BatchId = NewType("BatchId", bytes)
"""16 random bytes, drawn by the shuffler."""

BATCH_ID_BYTES: Final = 16


class Outcome(Enum):
    """What became of one submission at the shuffler."""

    STORED = "stored"
    REPEATED = "repeated"
    """These very bytes had been stored before."""
    CONFLICT = "conflict"
    """The submission id had been used with other bytes."""
    CLOSED = "closed"
    """The batch no longer collects."""
    MALFORMED = "malformed"
    """It does not open, or has the wrong length."""


class BatchState(Enum):
    """Where a batch is on its way through the shuffler."""

    COLLECTING = "collecting"
    CLOSED = "closed"
    PERMUTED = "permuted"
    DELIVERED = "delivered"
    ERASED = "erased"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus:
    """What the shuffler tells of a batch: nothing finer than the batch."""

    state: BatchState
    n_users: int
    n_min: int
    shuffle_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchManifest:
    """What the shuffler says of a batch that it delivers. The analyzer trusts it for n_users."""

    task_digest: TaskDigest
    batch_id: BatchId
    n_users: int
    n_reports: int
