"""
Entries of the log: signed tasks. Pure.

An entry is `shuffledp v1 log entry` in ASCII, the byte 1, the SHA-256 of the task's bytes and
the analyzer's signature: 32 and 64 bytes. A task contains the encryption keys of its round. A
device has the task and computes the entry itself; the digest keeps the log small.
"""

from dataclasses import dataclass
from typing import Final, Self

from common.crypto.signing import SIGNATURE_BYTES, SignedTask
from common.errors import WireError
from common.task_digest import DIGEST_BYTES

_LABEL: Final = b"shuffledp v1 log entry\x01"
_CONTENT_BYTES: Final = DIGEST_BYTES + SIGNATURE_BYTES


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log: a task's digest and signature."""

    content: bytes

    def __post_init__(self) -> None:
        if len(self.content) != _CONTENT_BYTES:
            raise WireError(
                f"a log entry has {len(self.content)} bytes of content; it must have "
                f"{_CONTENT_BYTES}"
            )

    @classmethod
    def of_task(cls, signed: SignedTask) -> Self:
        """Return the entry of a task. Run by the analyzer and by devices."""
        return cls(signed.digest() + signed.signature)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Parse an entry, or raise WireError."""
        if not raw.startswith(_LABEL):
            raise WireError("a log entry must start with its label and a known kind")
        return cls(raw[len(_LABEL) :])

    def to_bytes(self) -> bytes:
        """Return the entry's bytes, which its leaf hash covers."""
        return _LABEL + self.content
