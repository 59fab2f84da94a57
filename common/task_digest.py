"""The digest that identifies a task."""

from typing import Final, NewType

DIGEST_BYTES: Final = 32

TaskDigest = NewType("TaskDigest", bytes)
"""SHA-256 of a task's bytes exactly as published."""
