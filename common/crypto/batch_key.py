"""Keys that seal what a party stores, and those of batches, which are destroyed with them."""

import hashlib
import secrets
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from shuffledp.common.crypto.secret import Secret
from shuffledp.common.errors import DamagedStorageError

KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
_NONCE_BYTES: Final = 12


class SealingKey(Secret):
    """Encrypts a party's stored content by ChaCha20-Poly1305."""

    __slots__ = ("_aead",)

    def __init__(self, raw: bytes) -> None:
        self._aead = ChaCha20Poly1305(raw)

    @staticmethod
    def generate() -> bytes:
        """Draw a new raw key from the operating system."""
        return secrets.token_bytes(KEY_BYTES)

    def seal(self, row: bytes | memoryview, associated_data: bytes = b"") -> bytes:
        """Encrypt a row under a fresh nonce, bound to `associated_data`, the row's place."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, row, associated_data)

    def open(self, sealed: bytes, associated_data: bytes = b"") -> bytes:
        """
        Decrypt a row sealed by `seal` with the same associated data.

        Raises DamagedStorageError if the row was changed, moved, or sealed under another key.
        """
        try:
            nonce, ciphertext = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            return self._aead.decrypt(nonce, ciphertext, associated_data)
        except (InvalidTag, ValueError) as error:
            raise DamagedStorageError(
                "a stored row does not open: the disk is damaged, or the key is another batch's"
            ) from error


class BatchKey(SealingKey):
    """Encrypts one batch's stored rows, and computes keyed hashes of submissions and tokens."""

    __slots__ = ("_raw", "_tagging")

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        self._raw = raw
        tagging = hashlib.blake2b(key=raw, digest_size=KEY_BYTES, person=b"tags").digest()
        self._tagging = hashlib.blake2b(key=tagging, digest_size=TAG_BYTES)

    def private_bytes(self) -> bytes:
        """Return the raw key, for this party's own processes; it must not be logged."""
        return self._raw

    def tag(self, content: bytes | memoryview) -> bytes:
        """
        Return a keyed hash: equal for equal content, meaningless without the key.

        Keyed BLAKE2b of 16 bytes: among 10^7 contents, two collide by chance with probability below
        10^-24, and finding a collision requires the key.
        """
        tagged = self._tagging.copy()  # the key is hashed already
        tagged.update(content)
        return tagged.digest()
