"""
The key that encrypts one batch on the disk.

Submissions, buckets and the permuted batch are stored under a key of the batch alone. Destroying
the key erases them, whatever the disk still holds: deleting a file does not erase it.
"""

import hashlib
import secrets
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from common.errors import DamagedStorageError

KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
_NONCE_BYTES: Final = 12


class BatchKey:
    """Encrypts rows of one batch, and computes keyed hashes of them."""

    __slots__ = ("_aead", "_raw", "_tagging")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._aead = ChaCha20Poly1305(raw)
        tagging = hashlib.blake2b(key=raw, digest_size=KEY_BYTES, person=b"tags").digest()
        self._tagging = hashlib.blake2b(key=tagging, digest_size=TAG_BYTES)

    @staticmethod
    def generate() -> bytes:
        """Draw a new raw key from the operating system."""
        return secrets.token_bytes(KEY_BYTES)

    def private_bytes(self) -> bytes:
        """Return the raw key, for a worker process; it must not be logged or sent."""
        return self._raw

    def tag(self, content: bytes | memoryview) -> bytes:
        """
        Return a keyed hash: equal for equal content, meaningless without the key.

        Keyed BLAKE2b of 16 bytes: two of 10^7 contents collide by chance with probability below
        10^-24, and finding a collision takes the key.
        """
        tagged = self._tagging.copy()  # the key is hashed already
        tagged.update(content)
        return tagged.digest()

    def seal(self, row: bytes | memoryview, place: bytes = b"") -> bytes:
        """Encrypt a row under a fresh nonce, bound to the place where it is stored."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, row, place)

    def open(self, sealed: bytes, place: bytes = b"") -> bytes:
        """
        Decrypt a row from `seal`.

        Raises:
            DamagedStorageError: The row was changed, moved, or sealed under another key.
        """
        try:
            return self._aead.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)
        except (InvalidTag, ValueError) as error:
            raise DamagedStorageError(
                "a stored row does not open: the disk is damaged, or the key is another batch's"
            ) from error

    def __repr__(self) -> str:
        return "BatchKey(secret)"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a batch key must not be pickled; use private_bytes()")
