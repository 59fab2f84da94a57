"""
The key that the secrets of a state directory are encrypted under; its file lies outside of it.

A copy of the directory alone, such as a backup or a disk that was thrown away, opens nothing.
Whoever can also read the key's file, or the memory of the running process, reads everything; and
whoever can write to the directory can put secrets of their own in it.
"""

import secrets
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from common.errors import SettingsError

STATE_KEY_BYTES: Final = 32

_MARK: Final = b"shuffledp sealed secret v1\n"
_NONCE_BYTES: Final = 12


class StateKey:
    """Seals secrets, each bound to the name of its file. Shows nothing."""

    __slots__ = ("_aead", "_where")

    def __init__(self, raw: bytes, where: Path) -> None:
        if len(raw) != STATE_KEY_BYTES:
            raise SettingsError(
                f"the file that state_key names, {where}, has {len(raw)} bytes; it must have "
                f"{STATE_KEY_BYTES}"
            )
        self._aead = ChaCha20Poly1305(raw)
        self._where = where

    @staticmethod
    def generate() -> bytes:
        """Draw a new raw key from the operating system."""
        return secrets.token_bytes(STATE_KEY_BYTES)

    def seal(self, name: str, secret: bytes) -> bytes:
        """Encrypt the secret of a file of this name, under a fresh nonce."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _MARK + nonce + self._aead.encrypt(nonce, secret, _MARK + name.encode())

    def open(self, name: str, sealed: bytes) -> bytes:
        """
        Decrypt what `seal` made for a file of this very name.

        Raises:
            SettingsError: It does not open.
        """
        body = sealed.removeprefix(_MARK)
        nonce, encrypted = body[:_NONCE_BYTES], body[_NONCE_BYTES:]
        try:
            return self._aead.decrypt(nonce, encrypted, _MARK + name.encode())
        except (InvalidTag, ValueError) as error:
            raise SettingsError(
                f"{name} in the state directory does not open under the file that state_key names, "
                f"{self._where}: it was sealed under another key, for another file, or is damaged"
            ) from error

    def __repr__(self) -> str:
        return "StateKey(secret)"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a state key is not pickled")


def is_sealed(content: bytes) -> bool:
    """Say whether a file's content is a sealed secret, or one of an earlier version, in plain."""
    return content.startswith(_MARK)
