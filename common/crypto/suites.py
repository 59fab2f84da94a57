"""
The HPKE suites that a task may name [RFC9180]: key encapsulation, key derivation, encryption.

A task names one suite for both of its layers. Private keys have 32 bytes in every suite; for the
post-quantum hybrid they are the seed that ML-KEM-768's and X25519's keys are drawn from [XWing].
The hybrid stays closed to whoever records reports today and builds a quantum computer later: it
holds as long as either half does. Its reports are 1,088 bytes longer.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from common.errors import WireError

PrivateHalf: TypeAlias = X25519PrivateKey | MLKEM768X25519PrivateKey
PublicHalf: TypeAlias = X25519PublicKey | MLKEM768X25519PublicKey

PRIVATE_KEY_BYTES: Final = 32
"""Length of a private key, in every suite."""

_TAG_BYTES: Final = 16
_X25519_BYTES: Final = 32
_MLKEM768_SEED_BYTES: Final = 64
_MLKEM768_PUBLIC_BYTES: Final = 1184


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSpec:
    """One suite: its name in a task, its lengths, and how its keys are read."""

    name: str
    hpke: Suite
    hybrid: bool
    public_key_bytes: int
    overhead_bytes: int
    """What sealing adds to a plaintext: the encapsulated key and the authentication tag."""

    def private_half(self, raw: bytes) -> PrivateHalf:
        """Read a private key of this suite; raise WireError if it has another length."""
        if len(raw) != PRIVATE_KEY_BYTES:
            raise WireError(f"a private key has {len(raw)} bytes; it must have {PRIVATE_KEY_BYTES}")
        if not self.hybrid:
            return X25519PrivateKey.from_private_bytes(raw)
        return MLKEM768X25519PrivateKey(*_hybrid_halves(raw))

    def public_bytes(self, raw: bytes) -> bytes:
        """Return the public key that belongs to a raw private key."""
        if not self.hybrid:
            return X25519PrivateKey.from_private_bytes(raw).public_key().public_bytes_raw()
        lattice, curve = _hybrid_halves(raw)
        return lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw()

    def public_half(self, raw: bytes) -> PublicHalf:
        """Read a public key of this suite; raise WireError if it is none, or of another length."""
        if len(raw) != self.public_key_bytes:
            raise WireError(
                f"a public key has {len(raw)} bytes; in the suite {self.name} it must have "
                f"{self.public_key_bytes}"
            )
        if not self.hybrid:
            return X25519PublicKey.from_public_bytes(raw)
        lattice, curve = raw[:_MLKEM768_PUBLIC_BYTES], raw[_MLKEM768_PUBLIC_BYTES:]
        try:
            return MLKEM768X25519PublicKey(
                MLKEM768PublicKey.from_public_bytes(lattice),
                X25519PublicKey.from_public_bytes(curve),
            )
        except ValueError as error:
            raise WireError("these bytes are not a public key of the suite") from error


def suite_named(name: str) -> SuiteSpec:
    """Find a suite; raise WireError if none has this name."""
    if name not in SUITES:
        raise WireError(f"the suite must be one of {', '.join(SUITES)}")
    return SUITES[name]


def _hybrid_halves(seed: bytes) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
    """Draw both halves from one seed, as [XWing] expands a decapsulation key."""
    expanded = hashlib.shake_256(seed).digest(_MLKEM768_SEED_BYTES + _X25519_BYTES)
    return (
        MLKEM768PrivateKey.from_seed_bytes(expanded[:_MLKEM768_SEED_BYTES]),
        X25519PrivateKey.from_private_bytes(expanded[_MLKEM768_SEED_BYTES:]),
    )


def _suite(name: str, kem: KEM, aead: AEAD) -> SuiteSpec:
    hybrid = kem == KEM.MLKEM768_X25519
    return SuiteSpec(
        name=name,
        hpke=Suite(kem, KDF.HKDF_SHA256, aead),
        hybrid=hybrid,
        public_key_bytes=_X25519_BYTES + (_MLKEM768_PUBLIC_BYTES if hybrid else 0),
        overhead_bytes=kem.enc_length() + _TAG_BYTES,
    )


DEFAULT_SUITE: Final = "x25519-hkdf-sha256-chacha20poly1305"
"""What a draft that says nothing gets."""

SUITES: Final[Mapping[str, SuiteSpec]] = MappingProxyType(
    {
        suite.name: suite
        for suite in (
            _suite(DEFAULT_SUITE, KEM.X25519, AEAD.CHACHA20_POLY1305),
            _suite("x25519-hkdf-sha256-aes128gcm", KEM.X25519, AEAD.AES_128_GCM),
            _suite(
                "mlkem768x25519-hkdf-sha256-chacha20poly1305",
                KEM.MLKEM768_X25519,
                AEAD.CHACHA20_POLY1305,
            ),
        )
    }
)
