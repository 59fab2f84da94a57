"""
The secret that lasting noise of a person's answers follows from: it outlives every task.

Whoever has it can tell that noise from the value. It is made once the device's owner allows lasting
responses, kept encrypted in the state directory, and never leaves the device.
"""

import hashlib
import hmac
import secrets
from typing import Final

from common.errors import KeyFormatError

SECRET_BYTES: Final = 32
_LABEL: Final = b"shuffledp v1 person\x00"
_FINGERPRINT_LABEL: Final = b"shuffledp v1 fingerprint\x00"


class PersonalSecrets:
    """Derives each person's secret from the device's, so that no two persons share noise."""

    def __init__(self, device_secret: bytes) -> None:
        """
        Take the device's secret.

        Raises:
            KeyFormatError: It does not have 32 bytes.
        """
        if len(device_secret) != SECRET_BYTES:
            raise KeyFormatError(
                f"the device's secret has {len(device_secret)} bytes; it must have {SECRET_BYTES}"
            )
        self._device_secret = device_secret

    def __repr__(self) -> str:
        """Show that there is one, and nothing of it."""
        return "PersonalSecrets(not shown)"

    @property
    def fingerprint(self) -> bytes:
        """What the secret is recognised by; it tells nothing of it."""
        return hashlib.sha256(_FINGERPRINT_LABEL + self._device_secret).digest()

    @staticmethod
    def generate() -> bytes:
        """Make a device's secret, once."""
        return secrets.token_bytes(SECRET_BYTES)

    def of(self, person: str) -> bytes:
        """Give a person's secret, the same as long as the device keeps its own."""
        return hmac.digest(self._device_secret, _LABEL + person.encode(), hashlib.sha256)
