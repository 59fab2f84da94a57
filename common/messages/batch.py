"""A batch's state, progress and manifest, and a task's state at the analyzer."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NewType

from common.task_digest import TaskDigest

BatchId = NewType("BatchId", bytes)
"""16 random bytes, drawn by the shuffler."""

BATCH_ID_BYTES: Final = 16


class BatchState(Enum):
    """The states of a batch at the shuffler."""

    COLLECTING = "collecting"
    CLOSED = "closed"
    PERMUTED = "permuted"
    DELIVERED = "delivered"
    ERASED = "erased"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus:
    """A batch as devices see it: nothing finer than the batch."""

    state: BatchState
    n_users: int
    """0 while it collects: a count that grows would tell when each submission came."""
    n_min: int
    shuffle_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """A batch as the shuffler's operator sees it."""

    state: BatchState
    n_users: int
    """So far: unlike BatchStatus, while it collects too."""
    n_min: int
    target_size: int
    deadline: int
    refused: Mapping[str, int]
    """Submissions that were not stored, by cause: the names of their outcomes."""
    repeated: int
    """Came again, byte for byte: harmless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchManifest:
    """The shuffler's announcement of a delivery. The analyzer trusts it for n_users."""

    task_digest: TaskDigest
    batch_id: BatchId
    n_users: int
    n_reports: int


class TaskState(Enum):
    """The states of a task at the analyzer, which does not see how far its batch is."""

    OPEN = "open"
    """No batch has come yet."""
    OVERDUE = "overdue"
    """The deadline has passed without a batch: expired, undeliverable, or on its way."""
    STAGED = "staged"
    """The batch has come, and is being estimated."""
    RELEASED = "released"
    UNUSABLE = "unusable"
    """Its batch is never released, whether it was read or refused before; `failure` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """A line about a task."""

    task_digest: TaskDigest
    state: TaskState
    protocol: str
    domain_size: int
    population: str
    n_min: int
    target_size: int
    deadline: int
    n_users: int
    """Of the batch, as it was delivered; 0 before."""
    failure: str
    """Why it is unusable; else empty."""
