"""
The issuer's half of blind signatures: the private key and its operation [RFC9474, Section 4.3].

This machine's libcrypto 3 raises to the private exponent, for which `cryptography` has no function.
It takes a quarter of GMP's time, and works in constant time, on operands multiplied by a secret
power that changes with each call. Where it is missing, GMP's `mpz_powm_sec` does it, whose time and
memory accesses depend only on the operands' sizes. The rest of GMP has no such promise. It works on
values multiplied by a fresh secret power, which no caller can choose or know. Each result is
verified by the public exponent before it leaves. Only the issuer imports this module, and with it
gmpy2.
"""

import ctypes
import secrets
import weakref
from ctypes import c_char_p, c_int, c_long, c_size_t, c_void_p
from functools import cache
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from gmpy2 import invert, powmod, powmod_sec

from shuffledp.common.crypto.blind_signatures import draw_blind
from shuffledp.common.crypto.hpke import fingerprint
from shuffledp.common.crypto.privacy_tokens import EXPONENT, MODULUS_BYTES, TokenKey
from shuffledp.common.crypto.secret import Secret
from shuffledp.common.errors import ProofError, WireError

_FILES: Final = ("libcrypto.so.3", "libcrypto.3.dylib")
"""On Linux and macOS. The loader takes the one that Python is linked to, if it is."""
_NO_PADDING: Final = 3
_SIZE: Final = ctypes.POINTER(c_size_t)
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "d2i_AutoPrivateKey": (c_void_p, c_void_p, ctypes.POINTER(c_char_p), c_long),
    "EVP_PKEY_free": (None, c_void_p),
    "EVP_PKEY_CTX_new": (c_void_p, c_void_p, c_void_p),
    "EVP_PKEY_CTX_free": (None, c_void_p),
    "EVP_PKEY_sign_init": (c_int, c_void_p),
    "EVP_PKEY_CTX_set_rsa_padding": (c_int, c_void_p, c_int),
    "EVP_PKEY_sign": (c_int, c_void_p, c_char_p, _SIZE, c_char_p, c_size_t),
}
"""Types of the result and the arguments."""


@cache
def _library() -> dict[str, Any] | None:
    """Load the functions; return None if this machine lacks them."""
    for file in _FILES:
        try:
            # A CDLL releases the interpreter's lock, which only the long operation is worth.
            quick, long = ctypes.PyDLL(file), ctypes.CDLL(file)
            found = {name: getattr(quick, name) for name in _FUNCTIONS}
            found["EVP_PKEY_sign"] = long.EVP_PKEY_sign
        except (OSError, AttributeError):
            continue
        for name, (result, *arguments) in _FUNCTIONS.items():
            found[name].restype, found[name].argtypes = result, arguments
        return found
    return None


class OpenSslKey(Secret):
    """A private RSA key in libcrypto's memory, overwritten at the end. Threads may share it."""

    def __init__(self, der: bytes) -> None:
        """Load a key in PKCS #8 that `cryptography` has accepted."""
        self._call = _library() or {}
        self._key = None
        if self._call:
            raw = ctypes.byref(c_char_p(der))
            self._key = self._call["d2i_AutoPrivateKey"](None, raw, len(der))
            weakref.finalize(self, self._call["EVP_PKEY_free"], self._key)

    def power(self, value: bytes) -> bytes | None:
        """
        Raise a number, as long as the modulus and below it, to the private exponent.

        Returns None if libcrypto is missing or refuses. Cost: 0.3 ms for 2,048 bits.
        """
        if self._key is None:
            return None
        call, size = self._call, len(value)
        result, length = ctypes.create_string_buffer(size), c_size_t(size)
        context = call["EVP_PKEY_CTX_new"](self._key, None)
        try:
            done = (
                call["EVP_PKEY_sign_init"](context) == 1
                and call["EVP_PKEY_CTX_set_rsa_padding"](context, _NO_PADDING) == 1
                and call["EVP_PKEY_sign"](context, result, ctypes.byref(length), value, size) == 1
            )
        finally:
            call["EVP_PKEY_CTX_free"](context)
        return result.raw if done and length.value == size else None


def blinded_number(blinded: bytes, modulus: int) -> int:
    """Parse a blinded message; raise WireError unless it is as long as the modulus and below it."""
    length, message = (modulus.bit_length() + 7) // 8, int.from_bytes(blinded)
    if len(blinded) != length or message >= modulus:
        raise WireError(f"a blinded message must have {length} bytes and be below the modulus")
    return message


def blind_sign(
    private: rsa.RSAPrivateNumbers, blinded: bytes, openssl: OpenSslKey | None = None
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


def _power_by_gmp(private: rsa.RSAPrivateNumbers, message: int) -> int:
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
            key = serialization.load_der_private_key(raw, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise WireError("this is not an unencrypted private key in PKCS #8") from error
        if not isinstance(key, rsa.RSAPrivateKey):
            raise WireError("a token key must be an RSA key")
        self._public = TokenKey.of(key.public_key())
        self._numbers = key.private_numbers()
        self._openssl = OpenSslKey(raw)

    @staticmethod
    def generate() -> bytes:
        """Draw a new private key in PKCS #8. Never log or send it. Cost: 0.1 s, varying widely."""
        key = rsa.generate_private_key(EXPONENT, 8 * MODULUS_BYTES)
        return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())

    def token_key(self) -> TokenKey:
        """Return the public half, for the task."""
        return self._public

    def blind_sign(self, blinded: bytes) -> bytes:
        """Sign a blinded token; see the function `blind_sign`."""
        return blind_sign(self._numbers, blinded, self._openssl)

    def __repr__(self) -> str:
        return f"TokenSigningKey(of {fingerprint(self._public.der)})"
