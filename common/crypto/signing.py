"""
Long-lived signing identities (Ed25519 [RFC8032]), and the tasks that the analyzer signs.

Devices pin identities, not encryption keys, so that encryption keys can change with every task.
The analyzer signs tasks and what it received; the shuffler signs receipts. Every kind of message
has a label of its own, so that a signature of one kind is never one of another.
"""

import hashlib
from dataclasses import dataclass
from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from common.crypto.hpke import fingerprint
from common.errors import ProofError, WireError
from common.task_digest import TaskDigest

SIGNATURE_BYTES: Final = 64
IDENTITY_BYTES: Final = 32

_TASK_LABEL: Final = b"shuffledp v1 task"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTask:
    """
    A task exactly as published, and the signature over it.

    The bytes are kept as they were received: they are what the digest and the signature are
    about, and nothing is ever serialised again.
    """

    task_bytes: bytes
    signature: bytes

    def digest(self) -> TaskDigest:
        """Return the SHA-256 of the bytes, which is the task's name everywhere."""
        return TaskDigest(hashlib.sha256(self.task_bytes).digest())


@dataclass(frozen=True, slots=True, init=False)
class PublicIdentity:
    """The public half of a party's identity; what a device pins."""

    _key: Ed25519PublicKey
    raw: bytes

    def __init__(self, raw: bytes) -> None:
        if len(raw) != IDENTITY_BYTES:
            raise WireError(f"an identity has {len(raw)} bytes; it must have {IDENTITY_BYTES}")
        object.__setattr__(self, "_key", Ed25519PublicKey.from_public_bytes(raw))
        object.__setattr__(self, "raw", raw)

    @classmethod
    def from_hex(cls, text: str, whose: str) -> Self:
        """Read one from 64 hexadecimal digits; raise WireError, which calls it `whose`."""
        try:
            return cls(bytes.fromhex(text))
        except ValueError as error:
            raise WireError(
                f"{whose} must be {2 * IDENTITY_BYTES} hexadecimal digits, as in identity.pub"
            ) from error

    def verify(self, signed: SignedTask) -> None:
        """Check that this identity signed the task; raise ProofError if it did not."""
        try:
            self._key.verify(signed.signature, _TASK_LABEL + signed.task_bytes)
        except InvalidSignature as error:
            raise ProofError(
                "the task's signature is not by the analyzer identity pinned here "
                f"({fingerprint(self.raw)})"
            ) from error

    def signed(self, label: bytes, message: bytes, signature: bytes) -> bool:
        """Return whether this identity signed a message under a label."""
        try:
            self._key.verify(signature, label + message)
        except InvalidSignature:
            return False
        return True

    def __repr__(self) -> str:
        return f"PublicIdentity({fingerprint(self.raw)})"


class SigningIdentity:
    """The private half. Held by its party alone; never prints."""

    __slots__ = ("_key",)

    def __init__(self, raw: bytes) -> None:
        if len(raw) != IDENTITY_BYTES:
            raise WireError(f"an identity has {len(raw)} bytes; it must have {IDENTITY_BYTES}")
        self._key = Ed25519PrivateKey.from_private_bytes(raw)

    @classmethod
    def generate(cls) -> Self:
        """Make a new identity from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    def private_bytes(self) -> bytes:
        """Return the raw key, for the key file; keep it off logs and wires."""
        return self._key.private_bytes_raw()

    def public_identity(self) -> PublicIdentity:
        """Return the half that devices pin."""
        return PublicIdentity(self._key.public_key().public_bytes_raw())

    def sign(self, task_bytes: bytes) -> SignedTask:
        """Sign a task's bytes. Run by the analyzer, for an operator."""
        return SignedTask(task_bytes=task_bytes, signature=self._key.sign(_TASK_LABEL + task_bytes))

    def sign_message(self, label: bytes, message: bytes) -> bytes:
        """Sign a message of fixed length, or a hash, under its kind's label; not for tasks."""
        return self._key.sign(label + message)

    def __repr__(self) -> str:
        return f"SigningIdentity(of {fingerprint(self.public_identity().raw)})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an identity is not pickled by accident; use private_bytes()")
