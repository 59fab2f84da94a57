"""
Unlinkable one-time tokens: Privacy Pass tokens of type 2 [RFC9577, RFC9578], blind RSA.

The issuer signs one blinded token per person and task, and cannot tell later which token is whose.
A task has its own token key. Since the key stands in the signed task, the issuer cannot mark a
device by giving it another one.
"""

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers

from shuffledp.common.crypto import blind_signatures, hpke
from shuffledp.common.crypto.blind_signatures import SALT_BYTES, RandomBytes, is_valid_signature
from shuffledp.common.errors import WireError
from shuffledp.common.task_digest import DIGEST_BYTES, TaskDigest

MODULUS_BYTES: Final = 256
"""Length of a blinded message and of a blind signature."""
NONCE_BYTES: Final = 32
KEY_ID_BYTES: Final = 32
TOKEN_BYTES: Final = 2 + 3 * 32 + MODULUS_BYTES

_TYPE: Final = b"\x00\x02"
EXPONENT: Final = 65537
_ISSUER_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")

# A key of this size and exponent has one DER encoding, without optional fields [RFC9578, Section
# 6.5], so that it is compared instead of parsed: a head, the modulus, and a tail.
_SPKI_HEAD: Final = bytes.fromhex(
    "30820152303d06092a864886f70d01010a"  # SubjectPublicKeyInfo: id-RSASSA-PSS
    "3030a00d300b0609608648016503040202"  # hash: SHA-384
    "a11a301806092a864886f70d010108300b0609608648016503040202"  # mask: MGF1 with SHA-384
    "a203020130"  # salt: 48 bytes
    "0382010f003082010a0282010100"  # RSAPublicKey: a modulus of 2048 bits
)
_SPKI_TAIL: Final = b"\x02\x03" + EXPONENT.to_bytes(3)


def check_issuer_name(name: str) -> None:
    """Raise WireError unless a name is a host name in lower case of at most 253 characters."""
    if not _ISSUER_NAME.fullmatch(name):
        raise WireError("an issuer's name must have 1 to 253 of a-z, 0-9, dot and hyphen")


def token_challenge(task_digest: TaskDigest, issuer_name: str) -> bytes:
    """
    Return the challenge that a task's tokens answer [RFC9577, Section 2.1.1].

    Raises WireError if `check_issuer_name` refuses the name, or the digest has not 32 bytes.
    """
    check_issuer_name(issuer_name)
    if len(task_digest) != DIGEST_BYTES:
        raise WireError(f"a task digest has {len(task_digest)} bytes; it must have {DIGEST_BYTES}")
    name, no_origin = issuer_name.encode(), bytes(2)
    return b"".join(
        (_TYPE, len(name).to_bytes(2), name, DIGEST_BYTES.to_bytes(1), task_digest, no_origin)
    )


def nonce_of(token: bytes) -> bytes:
    """
    Return a token's unique nonce, which marks it as spent.

    A whole token is not enough: the proof of unforgeability counts distinct messages, so that two
    tokens with one nonce may stem from one blind signature [RFC9474, Section 7].
    """
    return token[2 : 2 + NONCE_BYTES]


@dataclass(frozen=True, slots=True, init=False)
class TokenKey:
    """The public half of a task's token key, which verifies tokens; `der` stands in the task."""

    der: bytes
    rsa: RSAPublicKey = field(compare=False)
    modulus: int = field(compare=False)

    def __init__(self, der: bytes) -> None:
        modulus = int.from_bytes(der[len(_SPKI_HEAD) : -len(_SPKI_TAIL)])
        if der != _spki(modulus) or modulus.bit_length() != 8 * MODULUS_BYTES or modulus % 2 == 0:
            raise WireError(
                "a token key must be an RSA key of 2048 bits and exponent 65537, for RSASSA-PSS "
                "with SHA-384 and 48 bytes of salt, as RFC 9578 encodes it"
            )
        object.__setattr__(self, "der", der)
        object.__setattr__(self, "rsa", RSAPublicNumbers(EXPONENT, modulus).public_key())
        object.__setattr__(self, "modulus", modulus)

    @classmethod
    def of(cls, key: RSAPublicKey) -> Self:
        """Return an RSA key as a token key; raise WireError if its size or exponent is another."""
        public = key.public_numbers()
        if public.e != EXPONENT:
            raise WireError(f"a token key has the exponent {public.e}; it must be {EXPONENT}")
        return cls(_spki(public.n))

    @property
    def key_id(self) -> bytes:
        """SHA-256 of the encoded key, which its tokens contain [RFC9578, Section 6.5]."""
        return sha256(self.der).digest()

    def signed_part(self, challenge: bytes, nonce: bytes) -> bytes:
        """Return the signed part of a token: type, nonce, challenge digest and key id."""
        return _TYPE + nonce + sha256(challenge).digest() + self.key_id

    def is_valid_token(self, token: bytes, challenge: bytes) -> bool:
        """Return whether a token is valid. Run by the shuffler. Cost: about 20 µs."""
        signed = self.signed_part(challenge, nonce_of(token))
        signature = token[len(signed) :]
        return token.startswith(signed) and is_valid_signature(self.rsa, signed, signature)

    def is_for(self, token: bytes, challenge: bytes) -> bool:
        """Return whether a token, valid or not, names this key and answers this challenge."""
        return token.startswith(self.signed_part(challenge, nonce_of(token)))

    def __reduce__(self) -> tuple[object, ...]:
        return TokenKey, (self.der,)

    def __repr__(self) -> str:
        return f"TokenKey({hpke.fingerprint(self.der)})"


def _spki(modulus: int) -> bytes:
    length = max(MODULUS_BYTES, (modulus.bit_length() + 7) // 8)
    return _SPKI_HEAD + modulus.to_bytes(length) + _SPKI_TAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingToken:
    """
    A token that its device has requested and not yet received; hidden in repr.

    Its secrets link the request to the token. The device stores them until it holds the token, so
    that after a crash it sends the same blinded message, for which the issuer may sign again.
    """

    key: TokenKey
    challenge: bytes
    nonce: bytes
    salt: bytes
    r: int

    def __post_init__(self) -> None:
        can_blind = blind_signatures.is_blind(self.r, self.key.modulus)
        lengths = len(self.nonce), len(self.salt)
        if lengths != (NONCE_BYTES, SALT_BYTES) or not can_blind:
            raise WireError("a pending token is malformed, or was made for another key")

    @classmethod
    def draw(cls, key: TokenKey, challenge: bytes, random_bytes: RandomBytes) -> Self:
        """Draw the secrets of a new token. Run by the device."""
        return cls(
            key=key,
            challenge=challenge,
            nonce=random_bytes(NONCE_BYTES),
            salt=random_bytes(SALT_BYTES),
            r=blind_signatures.draw_blind(key.modulus, random_bytes),
        )

    @classmethod
    def from_bytes(cls, raw: bytes, key: TokenKey, challenge: bytes) -> Self:
        """Parse a stored pending token of the same task; raise WireError if it is malformed."""
        nonce, salt = raw[:NONCE_BYTES], raw[NONCE_BYTES:-MODULUS_BYTES]
        r = int.from_bytes(raw[-MODULUS_BYTES:])
        return cls(key=key, challenge=challenge, nonce=nonce, salt=salt, r=r)

    def to_bytes(self) -> bytes:
        """Return the secrets, for the device's own storage beside the task; never log them."""
        return self.nonce + self.salt + self.r.to_bytes(MODULUS_BYTES)

    def blinded(self) -> bytes:
        """Return the blinded message for the issuer, always the same; see `blind`."""
        signed = self.key.signed_part(self.challenge, self.nonce)
        return blind_signatures.blind(self.key.rsa, signed, salt=self.salt, r=self.r)

    def finalize(self, blind_signature: bytes) -> bytes:
        """Return the token, of TOKEN_BYTES; raise ProofError if the issuer's signature is wrong."""
        signed = self.key.signed_part(self.challenge, self.nonce)
        return signed + blind_signatures.finalize(self.key.rsa, signed, blind_signature, r=self.r)

    def __repr__(self) -> str:
        return f"PendingToken(for {hpke.fingerprint(self.key.der)})"
