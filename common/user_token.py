"""
Users' tokens: whoever holds one may submit once to each task of a collection.

A token is a serial number and the token issuer's signature over it (Ed25519 [RFC8032]). The
shuffler sees it beside a submission and learns no more than that the issuer made it; whoever hands
tokens out knows who got which, and should not be the shuffler's operator.
"""

import secrets
from typing import Final

from common.hpke import fingerprint
from common.signing import SIGNATURE_BYTES, PublicIdentity, SigningIdentity

SERIAL_BYTES: Final = 16
TOKEN_BYTES: Final = SERIAL_BYTES + SIGNATURE_BYTES

_LABEL: Final = b"shuffledp v1 user token"


class TokenIdentity(PublicIdentity):
    """The public half of a token key: what a shuffler checks tokens by."""

    __slots__ = ()

    def accepts(self, token: bytes) -> bool:
        """Say whether the issuer made this token. Run by the shuffler. Cost: about 0.1 ms."""
        serial, signature = token[:SERIAL_BYTES], token[SERIAL_BYTES:]
        return len(token) == TOKEN_BYTES and self.signed(_LABEL, serial, signature)

    def __repr__(self) -> str:
        return f"TokenIdentity({fingerprint(self.raw)})"


class TokenIssuer:
    """The private half. Held by whoever decides who takes part; never prints."""

    __slots__ = ("_identity",)

    def __init__(self, raw: bytes) -> None:
        self._identity = SigningIdentity(raw)

    @staticmethod
    def generate() -> bytes:
        """Draw a new raw key from the operating system."""
        return SigningIdentity.generate().private_bytes()

    def identity(self) -> TokenIdentity:
        """Give the half that a shuffler checks by."""
        return TokenIdentity(self._identity.public_identity().raw)

    def issue(self) -> bytes:
        """Make one token, with a serial number from the operating system."""
        serial = secrets.token_bytes(SERIAL_BYTES)
        return serial + self._identity.sign_message(_LABEL, serial)

    def __repr__(self) -> str:
        return f"TokenIssuer(of {fingerprint(self.identity().raw)})"


def serial_of(token: bytes) -> bytes:
    """Give what tells a token from all others: its serial number, not the signature over it."""
    return token[:SERIAL_BYTES]
