"""
What keeps a batch unreadable on the disk, and unrelated to anything once it is over.

Submissions and the permuted batch are stored under a key of the batch alone. Destroying it erases
them, whatever the disk still holds: deleting is not erasing.
"""

import hashlib
import hmac
import secrets
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

KEY_BYTES: Final = 32
TAG_BYTES: Final = 16

_NONCE_BYTES: Final = 12


class BatchKey:
    """Seals rows of one batch, and names them without telling what they are."""

    __slots__ = ("_aead", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._aead = ChaCha20Poly1305(raw)

    @staticmethod
    def generate() -> bytes:
        """Draw a new raw key from the operating system."""
        return secrets.token_bytes(KEY_BYTES)

    def tag(self, content: bytes) -> bytes:
        """Give a keyed hash: equal for equal content, meaningless without the key."""
        return hmac.digest(self._raw, content, hashlib.sha256)[:TAG_BYTES]

    def seal(self, row: bytes) -> bytes:
        """Encrypt a row under a fresh nonce."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, row, None)

    def open(self, sealed: bytes) -> bytes:
        """Decrypt a row that `seal` made; InvalidTag means a corrupted disk."""
        return self._aead.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)

    def __repr__(self) -> str:
        return "BatchKey(secret)"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a batch key is not pickled")
