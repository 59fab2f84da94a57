"""A task's state at the analyzer, for its operator."""

from dataclasses import dataclass
from enum import Enum

from common.task_digest import TaskDigest


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
