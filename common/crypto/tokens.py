"""Tokens: an operator's, shown to a service, and users', one for each submission."""

import re
import secrets
from typing import Final

from common.crypto.hpke import fingerprint
from common.crypto.signing import SIGNATURE_BYTES, PublicIdentity, SigningIdentity
from common.errors import CredentialError, SettingsError

_BYTES: Final = 32
_TEXT: Final = re.compile(rb"[0-9a-f]{%d}\n?" % (2 * _BYTES))


class OperatorToken:
    """One service's token, kept in its state directory as `operator.token`; never prints."""

    __slots__ = ("_token",)

    def __init__(self, text: bytes) -> None:
        """Read the file's content; raise SettingsError if it is no token, for example empty."""
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
        """Check a caller's token; raise CredentialError if it is missing or another."""
        if shown is None:
            raise CredentialError("this call needs an operator's token")
        if not self.matches(shown):
            raise CredentialError(
                "the operator's token is not this service's: each has its own, STATE/operator.token"
            )

    def __repr__(self) -> str:
        return "OperatorToken(secret)"


SERIAL_BYTES: Final = 16
TOKEN_BYTES: Final = SERIAL_BYTES + SIGNATURE_BYTES

_LABEL: Final = b"shuffledp v1 user token"


class TokenIdentity(PublicIdentity):
    """The public half of a token key: what a shuffler checks tokens by."""

    __slots__ = ()

    def accepts(self, token: bytes) -> bool:
        """Return whether the issuer made this token. Run by the shuffler. Cost: about 0.1 ms."""
        serial, signature = token[:SERIAL_BYTES], token[SERIAL_BYTES:]
        return len(token) == TOKEN_BYTES and self.signed(_LABEL, serial, signature)

    def __repr__(self) -> str:
        return f"TokenIdentity({fingerprint(self.raw)})"


class TokenIssuer:
    """The private half, held by the party that decides who takes part; never prints."""

    __slots__ = ("_identity",)

    def __init__(self, raw: bytes) -> None:
        self._identity = SigningIdentity(raw)

    @staticmethod
    def generate() -> bytes:
        """Draw a new raw key from the operating system."""
        return SigningIdentity.generate().private_bytes()

    def identity(self) -> TokenIdentity:
        """Return the half that a shuffler checks by."""
        return TokenIdentity(self._identity.public_identity().raw)

    def issue(self) -> bytes:
        """Make one token, with a serial number from the operating system."""
        serial = secrets.token_bytes(SERIAL_BYTES)
        return serial + self._identity.sign_message(_LABEL, serial)

    def __repr__(self) -> str:
        return f"TokenIssuer(of {fingerprint(self.identity().raw)})"


def serial_of(token: bytes) -> bytes:
    """Return a token's serial number, which tells it from all others."""
    return token[:SERIAL_BYTES]
