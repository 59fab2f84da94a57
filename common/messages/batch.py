"""A batch's state, progress and manifest, and a task's state at the analyzer."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Final, NewType

from shuffledp.common import limits
from shuffledp.common.task_digest import TaskDigest

BatchId = NewType("BatchId", bytes)
"""16 random bytes, drawn by the shuffler."""
BATCH_ID_BYTES: Final = 16
UserCount = Annotated[int, partial(limits.parse_count, maximum=limits.MAX_USERS)]
_PositiveUserCount = Annotated[int, partial(limits.parse_positive, maximum=limits.MAX_USERS)]

MAX_PARTS: Final = 8192
"""Maximum number of parts in which a batch is delivered."""
MAX_PART_BYTES: Final = 2**28
"""Maximum bytes of a part, which the analyzer holds in memory while it arrives."""
CONTENT_HASH_BYTES: Final = 32
MAX_REASON_CHARACTERS: Final = 1000
"""Maximum length of a stated reason; the rest is cut off."""


def chain_batch_id(digest: TaskDigest) -> BatchId:
    """
    Return the id of a batch that a relay receives and sends: it follows from the task.

    So no sender chooses the name of a relay's key, seed and blocks, or uses one for two tasks.
    """
    return BatchId(digest[:BATCH_ID_BYTES])


class BatchState(StrEnum):
    """The states of a batch at the shuffler."""

    COLLECTING = "collecting"
    CLOSED = "closed"
    PERMUTED = "permuted"
    DELIVERED = "delivered"
    ERASED = "erased"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"
    DROPPED = "dropped"
    SENT = "sent"
    UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus:
    """A batch's state as devices see it or, at a relay, as its operator does."""

    state: BatchState
    n_users: int
    """0 while the batch collects: a growing count would reveal the time of each submission."""
    n_min: int
    shuffle_seconds: float
    waits_for: Annotated[str, partial(limits.parse_word, allowed=("", "analyzer", "relay"))] = ""
    """The next party, if it did not take the batch when last asked."""
    n_layers: int = 0
    """Number of layers that arrived at a relay."""
    n_discarded: int = 0
    """Number of them that the relay discarded; 0 until it has permuted the batch."""
    reason: Annotated[str, partial(limits.parse_bounded, length=MAX_REASON_CHARACTERS)] = ""
    """Why the next party did not take the batch when last asked, in its words. Untrusted text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """A batch's progress as the shuffler's operator sees it."""

    state: BatchState
    n_users: UserCount
    """Number of users so far, even while the batch collects."""
    n_min: _PositiveUserCount
    target_size: _PositiveUserCount
    deadline: Annotated[int, partial(limits.parse_positive, maximum=limits.MAX_UNIX_TIME)]
    refused: Mapping[str, int]
    """Number of submissions that were not stored, by outcome."""
    repeated: int
    """Number of submissions that were repeated unchanged, which is harmless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchManifest:
    """The shuffler's announcement of a delivery. The analyzer trusts the stated n_users."""

    task_digest: TaskDigest
    batch_id: Annotated[BatchId, partial(limits.parse_fixed, length=BATCH_ID_BYTES)]
    n_users: UserCount
    n_reports: int
    n_discarded: UserCount = 0
    """Number of layers that the relay discarded: they did not open, or were repeats."""
    by_length: tuple[int, ...] = ()
    """Number of submissions of each of the task's lengths, ascending by length; may be empty if all
    submissions have one length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPart:
    """A part of a delivered batch."""

    task_digest: TaskDigest
    part: Annotated[int, partial(limits.parse_count, maximum=MAX_PARTS - 1)]
    """Its number, from 0."""
    n_reports: int
    content_hash: Annotated[bytes, partial(limits.parse_fixed, length=CONTENT_HASH_BYTES)]
    """SHA-256 of its sealed reports."""


class TaskState(StrEnum):
    """The states of a task at the analyzer, which sees a batch only when it is delivered."""

    OPEN = "open"
    """No batch has arrived yet."""
    OVERDUE = "overdue"
    """The deadline has passed without a batch: the batch expired, cannot be delivered, or is being
    delivered."""
    STAGED = "staged"
    """The batch has arrived and is being estimated."""
    RELEASED = "released"
    UNUSABLE = "unusable"
    """The batch can never be released; `failure` states the reason."""
    QUARANTINED = "quarantined"
    """The batch failed a check, which `failure` states, and waits for the operator's decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """One row of the analyzer's list of tasks."""

    task_digest: TaskDigest
    state: TaskState
    protocol: str
    domain_size: int
    population: str
    n_min: int
    target_size: int
    deadline: int
    n_users: int
    """Number of users of the delivered batch; 0 before the delivery."""
    failure: str
    """Reason why the batch is unusable or quarantined; empty in every other state."""
