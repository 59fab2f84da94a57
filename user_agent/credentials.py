"""
The secrets of the device's users: for permanent noise, and for the issuer of tokens.

The device's permanent secret is generated when the device's owner allows permanent responses. It
is stored encrypted in the state directory, outlives every task, and never leaves the device.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shuffledp.common.errors import SettingsError, WireError

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


_SECRET_DIGITS: Final = re.compile(f"[0-9a-f]{{{2 * SECRET_BYTES}}}")


@dataclass(frozen=True, slots=True)
class CredentialFile:
    """
    A file of lines `CREDENTIAL` or `NAME CREDENTIAL`, which show the issuer who may get tokens.

    A credential is a secret of 64 hexadecimal digits, or an ID token. The file is read at each use,
    since ID tokens are renewed.
    """

    path: Path

    def of(self, person: str) -> bytes:
        """
        Return a person's credential: by the name or, on a device of one person, the only one.

        Raises SettingsError if the file cannot be read, has no credential of this person, or has
        several although the device is one person's.
        """
        found = [credential for name, credential in self.people() if person in {"", name}]
        if len(found) > 1:
            raise SettingsError(
                f"credential_file has {len(found)} credentials of one person; it must have one"
            )
        if not found:
            named = repr(person) if person else "this person"
            raise SettingsError(f"{self.path} has no credential of {named}")
        return found[0]

    def all(self) -> list[bytes]:
        """Return all credentials, or raise SettingsError."""
        return [credential for _, credential in self.people()]

    def people(self) -> list[tuple[str, bytes]]:
        """Return all names, empty for lines without, and credentials, or raise SettingsError."""
        found = list[tuple[str, bytes]]()
        try:
            lines = self.path.read_text(encoding="utf-8-sig").splitlines()
        except OSError as error:
            raise SettingsError(
                f"credential_file, {self.path}, cannot be read: {error.strerror}"
            ) from error
        except UnicodeDecodeError as error:
            raise SettingsError("credential_file is not UTF-8 text") from error
        for line in filter(None, map(str.strip, lines)):
            name, _, credential = line.rpartition(" ")
            secret = _SECRET_DIGITS.fullmatch(credential)
            found.append((name, bytes.fromhex(credential) if secret else credential.encode()))
        return found
