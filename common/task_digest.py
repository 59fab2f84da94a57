"""The digest that identifies a task."""

import hashlib
from typing import Final, NewType

DIGEST_BYTES: Final = 32

TaskDigest = NewType("TaskDigest", bytes)
"""SHA-256 of a task's bytes exactly as published."""


def digest_of(task_bytes: bytes) -> TaskDigest:
    """Return the digest of a task's bytes exactly as published."""
    return TaskDigest(hashlib.sha256(task_bytes).digest())
