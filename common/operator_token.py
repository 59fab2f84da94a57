"""What an operator shows to a service; devices do not have it."""

import secrets
from typing import Final

from common.errors import CredentialError

TOKEN_BYTES: Final = 32


class OperatorToken:
    """One service's token, kept in its state directory as `operator.token`; never prints."""

    __slots__ = ("_token",)

    def __init__(self, token: bytes) -> None:
        self._token = token

    @staticmethod
    def generate() -> bytes:
        """Draw a new token from the operating system, as hexadecimal text."""
        return secrets.token_hex(TOKEN_BYTES).encode()

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
            raise CredentialError("the operator's token is not valid")

    def __repr__(self) -> str:
        return "OperatorToken(secret)"
