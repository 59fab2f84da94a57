"""The privacy cost of one answer."""

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Self

from common.mechanisms.registry import rappor_of
from common.task.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The privacy cost of one answer, as claimed by its task and confirmed by this device."""

    local_epsilon: float
    central_epsilon: float
    delta: float
    scope: bytes = b""
    """Hash of a lasting question's `Task.permanent_scope`; empty for other tasks."""
    text: bytes = b""
    """Keyed hash of the answer's text, by which a device notices a change; empty likewise."""
    permanent_epsilon: float = math.inf
    """ε∞ of all answers of the scope with the same text."""

    @classmethod
    def of(cls, task: Task, text: bytes = b"") -> Self:
        """Return a task's claim for an answer whose text has this keyed hash."""
        claim = cls(
            local_epsilon=task.local_epsilon, central_epsilon=task.central_epsilon, delta=task.delta
        )
        if not task.lasting:
            return claim
        scope = hashlib.sha256(task.permanent_scope).digest()
        most = rappor_of(task).permanent_epsilon
        return replace(claim, scope=scope, text=text, permanent_epsilon=most)
