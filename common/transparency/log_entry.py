"""
Entries of the log: signed tasks, and the public keys of all parties. Pure.

An entry is `shuffledp v1 log entry` in ASCII, one byte for its kind, and content of fixed length:

| byte | kind | content |
|---|---|---|
| 1 | task | SHA-256 of the task's bytes, 32 bytes; the analyzer's signature, 64 bytes |
| 2 | key of the analyzer | Ed25519 key, 32 bytes |
| 3 | key of the shuffler | the same |
| 4 | key of the issuer of users' tokens | the same |
| 5 | key of a witness | the same |

A task contains the encryption keys of its round, so the log needs no entry for those. A device has
the task and computes the entry itself; the digest keeps the log small.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, Self

from common.crypto.signing import IDENTITY_BYTES, SIGNATURE_BYTES, PublicIdentity, SignedTask
from common.errors import WireError
from common.task_digest import DIGEST_BYTES

_LABEL: Final = b"shuffledp v1 log entry"


class EntryKind(IntEnum):
    """The kinds of entries, by their byte."""

    TASK = 1
    ANALYZER_KEY = 2
    SHUFFLER_KEY = 3
    ISSUER_KEY = 4
    WITNESS_KEY = 5


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log."""

    PREFIX_BYTES: ClassVar = len(_LABEL) + 1
    """Bytes before the content."""
    kind: EntryKind
    content: bytes

    def __post_init__(self) -> None:
        task = DIGEST_BYTES + SIGNATURE_BYTES
        expected = task if self.kind == EntryKind.TASK else IDENTITY_BYTES
        if len(self.content) != expected:
            raise WireError(
                f"a log entry of kind {self.kind} has {len(self.content)} bytes of content; "
                f"it must have {expected}"
            )

    @classmethod
    def of_task(cls, signed: SignedTask) -> Self:
        """Return the entry of a task. Run by the analyzer and by devices."""
        return cls(EntryKind.TASK, signed.digest() + signed.signature)

    @classmethod
    def of_key(cls, kind: EntryKind, identity: PublicIdentity) -> Self:
        """Return the entry of a party's key."""
        return cls(kind, identity.raw)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Parse an entry, or raise WireError."""
        kind = raw[len(_LABEL) : len(_LABEL) + 1]
        if not raw.startswith(_LABEL) or kind not in _KINDS:
            raise WireError("a log entry must start with its label and a known kind")
        return cls(_KINDS[kind], raw[cls.PREFIX_BYTES :])

    def to_bytes(self) -> bytes:
        """Return the entry's bytes, which its leaf hash covers."""
        return _LABEL + self.kind.to_bytes() + self.content


_KINDS: Final = {kind.to_bytes(): kind for kind in EntryKind}
