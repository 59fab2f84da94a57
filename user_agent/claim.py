"""The privacy cost of one answer."""

from dataclasses import dataclass
from typing import Self

from common.task.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The privacy cost of one answer, as claimed by its task and confirmed by this device."""

    local_epsilon: float
    central_epsilon: float
    delta: float

    @classmethod
    def of(cls, task: Task) -> Self:
        """Return a task's claim."""
        return cls(
            local_epsilon=task.local_epsilon, central_epsilon=task.central_epsilon, delta=task.delta
        )
