"""
The issuer's half of blind signatures: the private key and its operation [RFC9474, Section 4.3].

OpenSSL's libcrypto raises to the private exponent. Where it is missing, GMP's `mpz_powm_sec` does,
whose time and memory accesses depend only on the operands' sizes. The rest of GMP has no such
promise. It works on values multiplied by a fresh secret power, which no caller can choose or know.
Each result is verified by the public exponent before it leaves. Only the issuer imports this
module, and with it gmpy2.
"""

import secrets

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    RSAPrivateNumbers,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)
from gmpy2 import invert, powmod, powmod_sec

from common.crypto.blind_signatures import draw_blind
from common.crypto.hpke import fingerprint
from common.crypto.openssl_rsa import OpenSslKey
from common.crypto.privacy_tokens import EXPONENT, MODULUS_BYTES, TokenKey
from common.crypto.secret import Secret
from common.errors import ProofError, WireError


def blinded_number(blinded: bytes, modulus: int) -> int:
    """Parse a blinded message; raise WireError unless it is as long as the modulus and below it."""
    length, message = (modulus.bit_length() + 7) // 8, int.from_bytes(blinded)
    if len(blinded) != length or message >= modulus:
        raise WireError(f"a blinded message must have {length} bytes and be below the modulus")
    return message


def blind_sign(
    private: RSAPrivateNumbers, blinded: bytes, openssl: OpenSslKey | None = None
) -> bytes:
    """
    Sign a blinded message with a key of any size [RFC9474, Section 4.3]. Run by the issuer.

    `openssl` is the same key in libcrypto; without it, or if it refuses, GMP signs.

    Raises:
        WireError: See `blinded_number`.
        ProofError: The result is wrong because the processor or memory failed. It stays secret, as
            one result with a fault in one prime reveals the key.

    Cost: 0.3 ms for 2,048 bits; 1.2 ms without libcrypto.
    """
    n, e = private.public_numbers.n, private.public_numbers.e
    message = blinded_number(blinded, n)
    signature = None if openssl is None else openssl.power(blinded)
    if signature is None:
        signature = _power_by_gmp(private, message).to_bytes(len(blinded))
    if powmod(int.from_bytes(signature), e, n) != message:
        raise ProofError("the private operation gave a wrong signature: this machine is faulty")
    return signature


def _power_by_gmp(private: RSAPrivateNumbers, message: int) -> int:
    """Raise to the private exponent by the Chinese remainder theorem, behind a random mask."""
    n = private.public_numbers.n
    mask = draw_blind(n, secrets.token_bytes)
    masked = message * powmod(mask, private.public_numbers.e, n) % n
    at_p = powmod_sec(masked, private.dmp1, private.p)
    at_q = powmod_sec(masked, private.dmq1, private.q)
    combined = at_q + private.q * ((at_p - at_q) * private.iqmp % private.p)
    return int(combined * invert(mask, n) % n)


class TokenSigningKey(Secret):
    """The private half of a task's token key."""

    __slots__ = ("_numbers", "_openssl", "_public")

    def __init__(self, raw: bytes) -> None:
        try:
            key = load_der_private_key(raw, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise WireError("this is not an unencrypted private key in PKCS #8") from error
        if not isinstance(key, RSAPrivateKey):
            raise WireError("a token key must be an RSA key")
        self._public = TokenKey.of(key.public_key())
        self._numbers = key.private_numbers()
        self._openssl = OpenSslKey(raw)

    @staticmethod
    def generate() -> bytes:
        """Draw a new private key in PKCS #8. Never log or send it. Cost: 0.1 s, varying widely."""
        key = generate_private_key(EXPONENT, 8 * MODULUS_BYTES)
        return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())

    def token_key(self) -> TokenKey:
        """Return the public half, for the task."""
        return self._public

    def blind_sign(self, blinded: bytes) -> bytes:
        """Sign a blinded token; see the function `blind_sign`."""
        return blind_sign(self._numbers, blinded, self._openssl)

    def __repr__(self) -> str:
        return f"TokenSigningKey(of {fingerprint(self._public.der)})"
