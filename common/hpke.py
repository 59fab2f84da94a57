"""
Hybrid public key encryption [RFC9180] with two verbs: a public key seals, a private key opens.

Every ciphertext is bound to who sealed it, who may open it, and the task it belongs to: the three
go into HPKE's `info`, every field of fixed length. A report is sealed by the user agent to the
analyzer; the envelope around a user's reports by the user agent to the shuffler.
"""

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from common.errors import KeyFormatError, SealError, WireError
from common.task_digest import DIGEST_BYTES, TaskDigest

SUITE_NAME: Final = "x25519-hkdf-sha256-chacha20poly1305"
"""The one suite so far, by the name that a task carries."""

KEY_BYTES: Final = 32
"""Length of a public and of a private key of the suite."""

OVERHEAD_BYTES: Final = 48
"""What sealing adds to a plaintext: the encapsulated key (32) and the authentication tag (16)."""

_LABEL: Final = b"shuffledp v1 seal"
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


class Role(IntEnum):
    """Who seals and who opens; one byte of the context."""

    USER_AGENT = 1
    SHUFFLER = 2
    ANALYZER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SealContext:
    """What a ciphertext is bound to. Opening under any other context fails."""

    sender: Role
    recipient: Role
    task_digest: TaskDigest

    def __post_init__(self) -> None:
        if len(self.task_digest) != DIGEST_BYTES:
            raise WireError(
                f"a task digest has {len(self.task_digest)} bytes; it must have {DIGEST_BYTES}"
            )

    def info(self) -> bytes:
        """Give HPKE's `info`: label, sender, recipient, digest, each of fixed length."""
        return _LABEL + bytes([self.sender, self.recipient]) + self.task_digest


def report_context(task_digest: TaskDigest) -> SealContext:
    """Give the context of a sealed report: from a user agent to the analyzer."""
    return SealContext(sender=Role.USER_AGENT, recipient=Role.ANALYZER, task_digest=task_digest)


def envelope_context(task_digest: TaskDigest) -> SealContext:
    """Give the context of a submission's envelope: from a user agent to the shuffler."""
    return SealContext(sender=Role.USER_AGENT, recipient=Role.SHUFFLER, task_digest=task_digest)


@dataclass(frozen=True, slots=True, init=False)
class HpkePublicKey:
    """A party's public key. Seals."""

    _key: X25519PublicKey
    raw: bytes

    def __init__(self, raw: bytes) -> None:
        if len(raw) != KEY_BYTES:
            raise KeyFormatError(f"a public key has {len(raw)} bytes; it must have {KEY_BYTES}")
        object.__setattr__(self, "_key", X25519PublicKey.from_public_bytes(raw))
        object.__setattr__(self, "raw", raw)

    def seal(self, plaintext: bytes, context: SealContext) -> bytes:
        """Seal one plaintext under a context; see Sealer."""
        return self.sealer(context)(plaintext)

    def sealer(self, context: SealContext) -> "Sealer":
        """Give a function that seals many plaintexts under one context."""
        return Sealer(self._key, context.info())

    def __repr__(self) -> str:
        return f"HpkePublicKey({fingerprint(self.raw)})"


class Sealer:
    """Seals plaintexts to one key under one context."""

    __slots__ = ("_info", "_key")

    def __init__(self, key: X25519PublicKey, info: bytes) -> None:
        self._key = key
        self._info = info

    def __call__(self, plaintext: bytes) -> bytes:
        """
        Seal one plaintext: encapsulated key ‖ ciphertext ‖ tag.

        Raises:
            KeyFormatError: The key is a point of small order, to which nothing can be sealed.

        Cost: two X25519 operations, about 0.1 ms.
        """
        try:
            return _SUITE.encrypt(plaintext, self._key, self._info)
        except ValueError as error:
            raise KeyFormatError("nothing can be sealed to this public key") from error


class HpkePrivateKey:
    """A party's private key. Opens; never prints."""

    __slots__ = ("_key",)

    def __init__(self, raw: bytes) -> None:
        if len(raw) != KEY_BYTES:
            raise KeyFormatError(f"a private key has {len(raw)} bytes; it must have {KEY_BYTES}")
        self._key = X25519PrivateKey.from_private_bytes(raw)

    @classmethod
    def generate(cls) -> Self:
        """Make a new key from the operating system's randomness."""
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    def private_bytes(self) -> bytes:
        """Give the raw key, for a key file or a worker process; keep it off logs and wires."""
        return self._key.private_bytes_raw()

    def public_key(self) -> HpkePublicKey:
        """Give the public half."""
        return HpkePublicKey(self._key.public_key().public_bytes_raw())

    def open(self, sealed: bytes, context: SealContext) -> bytes:
        """
        Decrypt what was sealed to this key under this very context.

        Raises:
            SealError: It does not open: another key, another task or role, a changed or missing
                bit. One error with one message, whatever the cause.

        Cost: one X25519 operation, about 0.05 ms.
        """
        plaintext = self.opener(context)(sealed)
        if plaintext is None:
            raise SealError("a ciphertext does not open")
        return plaintext

    def opener(self, context: SealContext) -> "Opener":
        """Give a function that opens many ciphertexts under one context."""
        return Opener(self._key, context.info())

    def __repr__(self) -> str:
        return f"HpkePrivateKey(of {fingerprint(self._key.public_key().public_bytes_raw())})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a private key is not pickled by accident; use private_bytes()")


class Opener:
    """Opens ciphertexts with one key under one context."""

    __slots__ = ("_info", "_key")

    def __init__(self, key: X25519PrivateKey, info: bytes) -> None:
        self._key = key
        self._info = info

    def __call__(self, sealed: bytes | memoryview) -> bytes | None:
        """Open one ciphertext; None if it does not open."""
        try:
            return _SUITE.decrypt(sealed, self._key, self._info)
        except (InvalidTag, ValueError):
            return None


def fingerprint(public: bytes) -> str:
    """Give 16 hexadecimal digits of a public key's SHA-256, to show in place of a key."""
    return hashlib.sha256(public).hexdigest()[:16]
