"""
What keeps a batch unreadable on the disk, and unrelated to anything once it is over.

Submissions, buckets and the permuted batch are stored under a key of the batch alone. Destroying it
erases them, whatever the disk still holds: deleting is not erasing.
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
    """Seals rows of one batch, and names them without telling what they are."""

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
        """Give the raw key, for a worker process; keep it off logs and wires."""
        return self._raw

    def tag(self, content: bytes | memoryview) -> bytes:
        """
        Give a keyed hash: equal for equal content, meaningless without the key.

        Keyed BLAKE2b of 16 bytes: among 10^7 contents two are equal by chance with probability
        below 10^-24, and nobody without the key can prepare two.
        """
        tagged = self._tagging.copy()  # which has hashed the key already
        tagged.update(content)
        return tagged.digest()

    def seal(self, row: bytes | memoryview, place: bytes = b"") -> bytes:
        """Encrypt a row under a fresh nonce, bound to the place where it is stored."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, row, place)

    def open(self, sealed: bytes, place: bytes = b"") -> bytes:
        """
        Decrypt a row that `seal` made.

        Raises:
            DamagedStorageError: It is not that row, or not from that place.
        """
        try:
            return self._aead.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)
        except (InvalidTag, ValueError) as error:
            raise DamagedStorageError(
                "a row that the shuffler had stored does not open: the disk is damaged, or the key "
                "is another batch's"
            ) from error

    def __repr__(self) -> str:
        return "BatchKey(secret)"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a batch key is not pickled by accident; use private_bytes()")
