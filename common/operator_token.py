"""What an operator shows to a service; devices do not have it."""

import re
import secrets
from typing import Final

from common.errors import CredentialError, SettingsError

_BYTES: Final = 32
_TEXT: Final = re.compile(rb"[0-9a-f]{%d}\n?" % (2 * _BYTES))


class OperatorToken:
    """One service's token, kept in its state directory as `operator.token`; never prints."""

    __slots__ = ("_token",)

    def __init__(self, text: bytes) -> None:
        """
        Take the file's content.

        Raises:
            SettingsError: It is no token: an empty one would let everybody in.
        """
        if _TEXT.fullmatch(text) is None:
            raise SettingsError(
                f"operator.token must hold {2 * _BYTES} hexadecimal digits; remove the file, and "
                "the next start makes a new one"
            )
        self._token = text.strip()

    @staticmethod
    def generate() -> bytes:
        """Draw a new token from the operating system, as hexadecimal text."""
        return secrets.token_hex(_BYTES).encode()

    def matches(self, shown: str) -> bool:
        """Compare in constant time."""
        return secrets.compare_digest(shown.encode(), self._token)

    def check(self, shown: str | None) -> None:
        """
        Check what a caller showed.

        Raises:
            CredentialError: Nothing, or another token.
        """
        if shown is None:
            raise CredentialError("this call needs an operator's token")
        if not self.matches(shown):
            raise CredentialError(
                "the operator's token is not this service's: each has its own, STATE/operator.token"
            )

    def __repr__(self) -> str:
        return "OperatorToken(secret)"
