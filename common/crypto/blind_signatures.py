"""
RSA blind signatures [RFC9474], variant RSABSSA-SHA384-PSS-Deterministic: all but the private key.

The issuer sees an encoded message times r^e. For a uniform r, that product is uniform whatever the
message, so nothing links a finished signature to its request, however much the issuer computes. A
finished signature is an ordinary RSA-PSS signature [RFC8017, Section 8.1].

Python's integers suffice here although their speed depends on the operands: r is new in every
request, and the device chooses when to use it [RFC9474, Section 7.1]. The issuer's key is another
matter; see common/crypto/token_signing.py.
"""

import math
from collections.abc import Callable
from hashlib import sha384
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA384

from shuffledp.common.errors import ProofError, WireError

RandomBytes: TypeAlias = Callable[[int], bytes]
"""Draws this many secure random bytes: `secrets.token_bytes`, or a secure generator's `bytes`."""

SALT_BYTES: Final = 48
_HASH_BYTES: Final = 48
_PSS: Final = PSS(MGF1(SHA384()), SALT_BYTES)


def pss_encode(message: bytes, salt: bytes, bits: int) -> int:
    """Return EMSA-PSS-ENCODE(message, bits) [RFC8017, Section 9.1.1] as an integer."""
    digest = sha384(bytes(8) + sha384(message).digest() + salt).digest()
    size = (bits + 7) // 8 - _HASH_BYTES - 1
    hashes = (sha384(digest + i.to_bytes(4)).digest() for i in range(-(-size // _HASH_BYTES)))
    masked = int.from_bytes(b"\x01" + salt) ^ int.from_bytes(b"".join(hashes)[:size])
    masked &= (1 << (bits - 8 * (_HASH_BYTES + 1))) - 1
    return masked << 8 * (_HASH_BYTES + 1) | int.from_bytes(digest + b"\xbc")


def is_blind(r: int, modulus: int) -> bool:
    """Return whether r can blind: whether it has an inverse modulo the key's modulus."""
    return 0 < r < modulus and math.gcd(r, modulus) == 1


def draw_blind(modulus: int, random_bytes: RandomBytes) -> int:
    """Draw a uniform r that has an inverse. Cost: two draws of a modulus's length on average."""
    length = (modulus.bit_length() + 7) // 8
    while not is_blind(r := int.from_bytes(random_bytes(length)), modulus):
        pass
    return r


def blind(key: RSAPublicKey, message: bytes, *, salt: bytes, r: int) -> bytes:
    """
    Return the blinded message, as long as the modulus [RFC9474, Section 4.2]. Run by the device.

    The message must contain at least 32 random bytes [RFC9474, Section 7.3]. SALT_BYTES of `salt`
    are secret and random, and `r` is a secret of `draw_blind`, for this message only.

    Raises WireError if the encoded message shares a factor with the modulus, as of a malicious key.
    Cost: 0.2 ms for 2,048 bits.
    """
    public = key.public_numbers()
    encoded = pss_encode(message, salt, key.key_size - 1)
    if math.gcd(encoded, public.n) != 1:
        raise WireError("the issuer's key is invalid: its modulus has a small factor")
    return (encoded * pow(r, public.e, public.n) % public.n).to_bytes((key.key_size + 7) // 8)


def finalize(key: RSAPublicKey, message: bytes, blind_signature: bytes, *, r: int) -> bytes:
    """
    Return the message's signature [RFC9474, Section 4.4]. Run by the device.

    Raises ProofError if the blind signature has another length, or is not of this blinded message.
    Cost: 0.3 ms for 2,048 bits.
    """
    modulus, length = key.public_numbers().n, (key.key_size + 7) // 8
    if len(blind_signature) == length:
        unblinded = int.from_bytes(blind_signature) * pow(r, -1, modulus) % modulus
        signature = unblinded.to_bytes(length)
        if is_valid_signature(key, message, signature):
            return signature
    raise ProofError("the issuer's blind signature is not valid for the blinded message")


def is_valid_signature(key: RSAPublicKey, message: bytes, signature: bytes) -> bool:
    """Return whether this is the key's RSA-PSS signature of a message [RFC9474, Section 4.5]."""
    try:
        key.verify(signature, message, _PSS, SHA384())
    except InvalidSignature:
        return False
    return True
