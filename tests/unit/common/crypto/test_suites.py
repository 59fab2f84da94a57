import pytest

from common.crypto.hpke import HpkePrivateKey, HpkePublicKey
from common.crypto.suites import DEFAULT_SUITE, SUITES, suite_named
from common.errors import WireError

_HYBRID = "mlkem768x25519-hkdf-sha256-chacha20poly1305"


def test_the_hybrids_keys_are_those_of_the_published_vector() -> None:
    """
    The first vector of draft-connolly-cfrg-xwing-kem: one seed of 32 bytes, and the first and last
    32 bytes of the public key of ML-KEM-768 and X25519 that belongs to it.
    """
    seed = bytes.fromhex("7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26")
    public = HpkePrivateKey(_HYBRID, seed).public_key().raw

    assert 1216 == len(public)
    assert "e2236b35a8c24b39b10aa1323a96a919a2ced88400633a7b07131713fc14b2b5" == public[:32].hex()
    assert "859edb06eff389b27dce59844570216223593d4ba32d9abac8cd049040ef6534" == public[-32:].hex()


@pytest.mark.parametrize(
    ("suite", "public", "overhead"), list(zip(SUITES, [32, 32, 1216], [48, 48, 1136], strict=True))
)
def test_lengths_are_those_of_the_suite(suite: str, public: int, overhead: int) -> None:
    """32 bytes of X25519; 1,184 more for ML-KEM-768's key, 1,088 for its ciphertext."""
    assert public == suite_named(suite).public_key_bytes
    assert overhead == suite_named(suite).overhead_bytes
    assert public == len(HpkePrivateKey.generate(suite).public_key().raw)


def test_strange_suites_and_keys_are_refused() -> None:
    """Coefficients of ML-KEM-768 lie below 3329 [FIPS203, Section 7.2]."""
    with pytest.raises(WireError, match=DEFAULT_SUITE):
        suite_named("rot13")
    with pytest.raises(WireError, match="not a public key of the suite"):
        HpkePublicKey(_HYBRID, b"\xff" * 1216)
    with pytest.raises(WireError, match=r"has 32 bytes; in the suite mlkem.* must have 1216"):
        HpkePublicKey(_HYBRID, bytes(32))
