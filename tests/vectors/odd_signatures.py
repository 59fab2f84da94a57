"""Keys and signatures by which implementations of Ed25519 differ."""

from hashlib import sha512
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shuffledp.common.crypto.signing import SigningIdentity

_FIELD: Final = 2**255 - 19
_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
_EIGHTH: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
"""y of a point of order 8."""
_IDENTITY_POINT: Final = (1).to_bytes(32, "little")


def odd_signatures() -> list[dict[str, Any]]:
    """Return a signature each, whether a device accepts it, and whether OpenSSL does."""
    label, good = b"label", SigningIdentity(b"\x07" * 32)
    key, signature = good.public_identity().raw, good.sign_message(label, b"message")
    scalar = int.from_bytes(sha512(b"\x07" * 32).digest()[:32], "little")
    scalar = scalar & ~(7 | 1 << 255) | 1 << 254
    later = (int.from_bytes(signature[32:], "little") + _ORDER).to_bytes(32, "little")

    def by_identity(point: bytes) -> bytes:
        """Sign with the nonce 0, whose point is the identity, in this encoding."""
        challenge = int.from_bytes(sha512(point + key + label + b"message").digest(), "little")
        return point + (challenge * scalar % _ORDER).to_bytes(32, "little")

    cases = [
        ("a signature", key, b"message", signature, True),
        ("a signature with the nonce 0", key, b"message", by_identity(_IDENTITY_POINT), True),
        ("a second encoding of S", key, b"message", signature[:32] + later, False),
        (
            "a second encoding of R",
            key,
            b"message",
            by_identity((_FIELD + 1).to_bytes(32, "little")),
            False,
        ),
        ("another message", key, b"another", signature, False),
        ("half a signature", key, b"message", signature[:32], False),
    ]
    for y in (0, 1, _FIELD - 1, _EIGHTH, _FIELD - _EIGHTH, _FIELD, _FIELD + 1):
        for sign in (0, 1):
            point = (y | sign << 255).to_bytes(32, "little")
            message = next(m for n in range(10**4) if _is_multiple_of_8(point, m := n.to_bytes(2)))
            forged = _IDENTITY_POINT + bytes(32)
            cases.append(
                (
                    f"a key of small order, {point[:1].hex()}…{point[-1:].hex()}",
                    point,
                    message,
                    forged,
                    False,
                )
            )
    return [
        {
            "why": why,
            "key": raw.hex(),
            "label": label.decode(),
            "message": message.hex(),
            "signature": made.hex(),
            "valid": valid,
            "valid_in_openssl": _is_valid_in_openssl(raw, label + message, made),
        }
        for why, raw, message, made, valid in cases
    ]


def _is_valid_in_openssl(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _is_multiple_of_8(key: bytes, message: bytes) -> bool:
    digest = sha512(_IDENTITY_POINT + key + b"label" + message).digest()
    return digest[0] % 8 == 0
