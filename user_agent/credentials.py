"""
The device's permanent secret, from which permanent noise is derived, and its users' tokens.

The secret is generated when the device's owner allows permanent responses. It is stored encrypted
in the state directory, outlives every task, and never leaves the device.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.crypto.signing import TOKEN_BYTES
from common.errors import SettingsError, WireError

SECRET_BYTES: Final = 32
_LABEL: Final = b"shuffledp v1 person\x00"
_FINGERPRINT_LABEL: Final = b"shuffledp v1 fingerprint\x00"


class PersonalSecrets:
    """Derives each person's secret from the device's secret, so that no two people share noise."""

    def __init__(self, device_secret: bytes) -> None:
        """Store the device's secret; raise WireError unless it has 32 bytes."""
        if len(device_secret) != SECRET_BYTES:
            raise WireError(
                f"the device's secret has {len(device_secret)} bytes; it must have {SECRET_BYTES}"
            )
        self._device_secret = device_secret

    def __repr__(self) -> str:
        """Hide the secret."""
        return "PersonalSecrets(not shown)"

    @property
    def fingerprint(self) -> bytes:
        """Hash that identifies the secret without revealing it."""
        return hashlib.sha256(_FINGERPRINT_LABEL + self._device_secret).digest()

    @staticmethod
    def generate() -> bytes:
        """Generate a device's secret from the operating system's randomness."""
        return secrets.token_bytes(SECRET_BYTES)

    def of(self, person: str) -> bytes:
        """Derive a person's secret: HMAC-SHA-256 of the name under the device's secret."""
        return hmac.digest(self._device_secret, _LABEL + person.encode(), hashlib.sha256)


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file of lines `TOKEN` or `TOKEN NAME`, a token each; `path` is None if there is no file."""

    path: Path | None
    name: str = "token_file"
    """Name of the setting, for errors."""

    def token(self, person: str) -> bytes:
        """
        Return the token of a person, from the last line with the name; empty if there is none.

        Raises:
            SettingsError: The file cannot be read, or this person's line has no valid token.
        """
        found = b""
        for number, line in self._lines():
            digits, _, name = line.partition(" ")
            if name.strip() == person:
                found = self._read(digits, number)
        return found

    def tokens(self) -> list[bytes]:
        """Return the distinct tokens of a file without names, or raise SettingsError."""
        return list(dict.fromkeys(self._read(line, number) for number, line in self._lines()))

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Yield the non-empty lines with their numbers, or raise SettingsError."""
        if self.path is None:
            return
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise SettingsError(
                f"{self.name}, {self.path}, cannot be read: {error.strerror}"
            ) from error
        except UnicodeDecodeError as error:
            raise SettingsError(f"{self.name} is not UTF-8 text") from error
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.strip()

    def _read(self, digits: str, number: int) -> bytes:
        try:
            token = bytes.fromhex(digits)
        except ValueError:
            token = b""
        if len(token) != TOKEN_BYTES:
            raise SettingsError(
                f"line {number} of {self.name} has no token of {2 * TOKEN_BYTES} hexadecimal digits"
            )
        return token
