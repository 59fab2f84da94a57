"""
Signing identities (Ed25519 [RFC8032]), signed tasks, keys in tasks, and the shuffler's receipts.

Devices pin identities, not encryption keys, so that encryption keys can change with every task.
Every kind of message has its own label, so that no signature is valid for another kind. A receipt
is signed once the submission is stored. Together with a batch commitment that lacks the reports, it
proves that the shuffler did not forward an acknowledged submission. It covers only the sealed
envelope, so it does not reveal the content.

The keys in a task are signed by the identity of their party until a given time. Without these
signatures, an analyzer that answers at the shuffler's address could publish a task with an envelope
key of its own and open both layers; with a token key of its own, it could make as many users as it
wants.
"""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from shuffledp.common.crypto.hpke import HpkePublicKey, fingerprint, suite_named
from shuffledp.common.crypto.secret import Secret
from shuffledp.common.errors import ProofError, WireError
from shuffledp.common.task_digest import TaskDigest

SIGNATURE_BYTES: Final = 64
IDENTITY_BYTES: Final = 32

_FIELD: Final = 2**255 - 19
_EIGHTH: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER: Final = (0, 1, _FIELD - 1, _EIGHTH, _FIELD - _EIGHTH)
"""The y of the eight points of Ed25519 for which anyone can sign [CGN20]."""

_TASK_LABEL: Final = b"shuffledp v1 task"


def digest_of(task_bytes: bytes) -> TaskDigest:
    """Return the digest of a task's bytes exactly as published."""
    return TaskDigest(hashlib.sha256(task_bytes).digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTask:
    """
    A task exactly as published, and the signature over it.

    The digest and the signature cover the bytes as received, which are never serialized again.
    """

    task_bytes: bytes
    signature: bytes

    def digest(self) -> TaskDigest:
        """Return the SHA-256 of the bytes, which identifies the task."""
        return digest_of(self.task_bytes)


@dataclass(frozen=True, slots=True, init=False)
class PublicIdentity:
    """The public half of a party's identity, which devices pin and which verifies signatures."""

    _key: Ed25519PublicKey
    raw: bytes

    def __init__(self, raw: bytes) -> None:
        if len(raw) != IDENTITY_BYTES:
            raise WireError(f"an identity has {len(raw)} bytes; it must have {IDENTITY_BYTES}")
        y = int.from_bytes(raw, "little") % 2**255
        if y >= _FIELD or y in _SMALL_ORDER:  # OpenSSL takes both
            raise WireError("an identity must be a key of large order, in its only encoding")
        object.__setattr__(self, "_key", Ed25519PublicKey.from_public_bytes(raw))
        object.__setattr__(self, "raw", raw)

    @classmethod
    def from_hex(cls, text: str, whose: str) -> Self:
        """Parse 64 hexadecimal digits, or raise WireError; `whose` describes the identity."""
        raw = b""
        with suppress(ValueError):
            raw = bytes.fromhex(text)
        if len(raw) != IDENTITY_BYTES:
            raise WireError(
                f"{whose} must be {2 * IDENTITY_BYTES} hexadecimal digits, as in identity.pub"
            )
        return cls(raw)

    def verify(self, signed: SignedTask) -> None:
        """Check that this identity signed the task; raise ProofError if it did not."""
        if not self.is_valid_signature(_TASK_LABEL, signed.task_bytes, signed.signature):
            raise ProofError(
                f"the task is not signed by the pinned analyzer identity ({fingerprint(self.raw)})"
            )

    def is_valid_signature(self, label: bytes, message: bytes, signature: bytes) -> bool:
        """Return whether this identity signed a message under a label."""
        try:
            self._key.verify(signature, label + message)
        except InvalidSignature:
            return False
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({fingerprint(self.raw)})"


class SigningIdentity(Secret):
    """The private half of a party's identity, which signs."""

    __slots__ = ("_key",)

    def __init__(self, raw: bytes) -> None:
        if len(raw) != IDENTITY_BYTES:
            raise WireError(f"an identity has {len(raw)} bytes; it must have {IDENTITY_BYTES}")
        self._key = Ed25519PrivateKey.from_private_bytes(raw)

    @classmethod
    def generate(cls) -> Self:
        """Generate an identity from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    def private_bytes(self) -> bytes:
        """Return the raw key, for the key file; never log or send it."""
        return self._key.private_bytes_raw()

    def public_identity(self) -> PublicIdentity:
        """Return the public half, which devices pin."""
        return PublicIdentity(self._key.public_key().public_bytes_raw())

    def sign(self, task_bytes: bytes) -> SignedTask:
        """Sign a task's bytes. Run by the analyzer."""
        return SignedTask(task_bytes=task_bytes, signature=self._key.sign(_TASK_LABEL + task_bytes))

    def sign_message(self, label: bytes, message: bytes) -> bytes:
        """Sign a message of fixed length under its kind's label. For tasks, use `sign`."""
        return self._key.sign(label + message)

    def __repr__(self) -> str:
        return f"SigningIdentity(of {fingerprint(self.public_identity().raw)})"


_RECEIPT_LABEL: Final = b"shuffledp v1 receipt"
_BULK_RECEIPT_LABEL: Final = b"shuffledp v1 bulk receipt"


def envelope_hash(envelope: bytes) -> bytes:
    """Return an envelope's SHA-256, which its receipt covers."""
    return hashlib.sha256(envelope).digest()


def sign_receipt(identity: SigningIdentity, digest: TaskDigest, envelope: bytes) -> bytes:
    """Sign a receipt for a stored submission. Run by the shuffler. Cost: about 30 µs."""
    return identity.sign_message(_RECEIPT_LABEL, digest + envelope_hash(envelope))


def is_valid_receipt(
    identity: PublicIdentity, digest: TaskDigest, envelope: bytes, receipt: bytes
) -> bool:
    """Return whether a receipt covers this envelope. Run by the user agent. Cost: about 100 µs."""
    return identity.is_valid_signature(_RECEIPT_LABEL, digest + envelope_hash(envelope), receipt)


def sign_bulk_receipt(
    identity: SigningIdentity, digest: TaskDigest, stored: Iterable[bytes]
) -> bytes:
    """
    Sign one receipt for all stored envelopes of a call, in its order. Run by the shuffler.

    Cost: one signature, and one hash per envelope.
    """
    hashes = b"".join(map(envelope_hash, stored))
    return identity.sign_message(_BULK_RECEIPT_LABEL, digest + hashlib.sha256(hashes).digest())


_END_BYTES: Final = 8
PROOF_BYTES: Final = _END_BYTES + SIGNATURE_BYTES
"""Length of a proof: the end of the key's validity in seconds since 1970 UTC, and the signature."""


class KeyUse(Enum):
    """The kinds of signed keys: name of the task's field, its party, and label of the signature."""

    ENVELOPES = ("shuffler_key", "shuffler", b"shuffledp v1 envelope key")
    """The shuffler's key for envelopes; its scope is the suite."""
    LAYERS = ("relay_key", "relay", b"shuffledp v1 relay key")
    """The second shuffler's key for the layers around reports; its scope is the suite."""
    TOKENS = ("token_key", "issuer", b"shuffledp v1 token key")
    """The issuer's key for a task's tokens; its scope is the issuer's name."""


def prove_key(identity: SigningIdentity, use: KeyUse, scope: str, key: bytes, end: int) -> bytes:
    """Return the proof of a public key that is valid until `end`. Run by the key's party."""
    ending = end.to_bytes(_END_BYTES)
    return ending + identity.sign_message(use.value[2], _message(scope, key, ending))


def end_of_validity(proof: bytes) -> int:
    """Return the last second since 1970 UTC at which a key may be used."""
    return int.from_bytes(proof[:_END_BYTES])


def check_key(identity: PublicIdentity, use: KeyUse, scope: str, key: bytes, proof: bytes) -> None:
    """
    Check that a party's identity signed a task's key. Run by the user agent and the shuffler.

    Raises ProofError if it did not, or the task has no proof.
    """
    name, party, label = use.value
    message, signature = _message(scope, key, proof[:_END_BYTES]), proof[_END_BYTES:]
    if len(proof) != PROOF_BYTES or not identity.is_valid_signature(label, message, signature):
        raise ProofError(
            f"the task's {name} is not signed by the {party} identity ({fingerprint(identity.raw)})"
        )


def _message(scope: str, key: bytes, ending: bytes) -> bytes:
    return hashlib.sha256(scope.encode()).digest() + hashlib.sha256(key).digest() + ending


def signed_key(identity: SigningIdentity, use: KeyUse, key: HpkePublicKey, end: int) -> bytes:
    """Return a shuffler's public key followed by its proof, as in envelope.pub."""
    return key.raw + prove_key(identity, use, key.suite, key.raw, end)


def split_key(suite: str, use: KeyUse, signed: bytes) -> tuple[bytes, bytes]:
    """Split a shuffler's signed key into the key and its proof, or raise WireError."""
    length, (name, party, _) = suite_named(suite).public_key_bytes, use.value
    if len(signed) != length + PROOF_BYTES:
        raise WireError(
            f"{name} has {len(signed)} bytes; a key of the suite {suite}, signed by the "
            f"{party}, has {length + PROOF_BYTES}"
        )
    return signed[:length], signed[length:]
