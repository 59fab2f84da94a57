"""The private operation by OpenSSL and by GMP."""

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from shuffledp.common.crypto.token_signing import OpenSslKey, blind_sign
from shuffledp.common.errors import ProofError, WireError


def _der(key: RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


class _NoOpenSsl(OpenSslKey):
    """A key on a machine whose libcrypto is missing or refuses."""

    def power(self, value: bytes) -> bytes | None:  # the real one's signature
        return None


@pytest.mark.parametrize("bits", [2048, 3072])
def test_openssl_and_gmp_give_the_same_signatures(bits: int) -> None:
    """From 0 to the greatest message, whose signatures keep their leading zeros."""
    private = generate_private_key(65537, bits)
    numbers, openssl = private.private_numbers(), OpenSslKey(_der(private))
    n, length = numbers.public_numbers.n, bits // 8
    for message in (0, 1, 2, n // 3, pow(5, 65537, n), n - 1):
        blinded = message.to_bytes(length)
        assert blind_sign(numbers, blinded) == openssl.power(blinded)
        assert blind_sign(numbers, blinded) == blind_sign(numbers, blinded, openssl)
        assert blind_sign(numbers, blinded) == blind_sign(numbers, blinded, _NoOpenSsl(b""))
    for wrong in (n.to_bytes(length), b"\xff" * length, bytes(length - 1), b""):
        with pytest.raises(WireError, match="below the modulus"):
            blind_sign(numbers, wrong, openssl)


def test_a_wrong_result_of_openssl_stays_secret() -> None:
    """A fault may not leave the issuer: here the operation of another key."""
    private, other = (generate_private_key(65537, 2048) for _ in range(2))

    with pytest.raises(ProofError, match="this machine is faulty"):
        blind_sign(private.private_numbers(), (2).to_bytes(256), OpenSslKey(_der(other)))
