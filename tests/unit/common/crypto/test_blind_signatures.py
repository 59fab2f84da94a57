import math
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateNumbers,
    RSAPublicNumbers,
    rsa_crt_dmp1,
    rsa_crt_dmq1,
    rsa_crt_iqmp,
    rsa_recover_private_exponent,
)

from shuffledp.common.crypto import blind_signatures
from shuffledp.common.crypto.token_signing import blind_sign
from shuffledp.common.errors import ProofError, WireError
from tests.support.vectors import vectors

_FILE: dict[str, Any] = vectors("blind_signatures")
_P, _Q, _E = (int(_FILE[name], 16) for name in ("p", "q", "e"))
_N = _P * _Q
_PUBLIC = RSAPublicNumbers(_E, _N)
_KEY = _PUBLIC.public_key()


def _private(*, fault: int = 0) -> RSAPrivateNumbers:
    """Return the vectors' private key, optionally with a fault in one half."""
    d = rsa_recover_private_exponent(_E, _P, _Q)
    return RSAPrivateNumbers(
        p=_P,
        q=_Q,
        d=d,
        dmp1=rsa_crt_dmp1(d, _P),
        dmq1=rsa_crt_dmq1(d, _Q) + fault,
        iqmp=rsa_crt_iqmp(_P, _Q),
        public_numbers=_PUBLIC,
    )


@pytest.mark.parametrize("case", _FILE["cases"], ids=lambda case: case["name"])
def test_every_step_is_that_of_the_published_vectors(case: dict[str, str]) -> None:
    """The vectors of [RFC9474, Appendix A]; a signature without salt is of another variant."""
    step = {name: bytes.fromhex(text) for name, text in case.items() if name != "name"}
    r = pow(int.from_bytes(step["inverse"]), -1, _N)

    if "encoded" in step:
        encoded = blind_signatures.pss_encode(step["message"], step["salt"], 4095)
        assert int.from_bytes(step["encoded"]) == encoded
    assert step["blinded"] == blind_signatures.blind(_KEY, step["message"], salt=step["salt"], r=r)
    assert step["blind_signature"] == blind_sign(_private(), step["blinded"])
    if step["salt"]:
        made = blind_signatures.finalize(_KEY, step["message"], step["blind_signature"], r=r)
        assert step["signature"] == made
        return
    assert not blind_signatures.is_valid_signature(_KEY, step["message"], step["signature"])
    with pytest.raises(ProofError):
        blind_signatures.finalize(_KEY, step["message"], step["blind_signature"], r=r)


def test_a_wrong_signature_of_the_issuer_is_refused() -> None:
    """A changed bit, another length, another message or another r."""
    case = {n: bytes.fromhex(text) for n, text in _FILE["cases"][0].items() if n != "name"}
    signed, r = case["blind_signature"], pow(int.from_bytes(case["inverse"]), -1, _N)
    wrong = (signed[:-1] + bytes([signed[-1] ^ 1]), signed[1:], b"\0" + signed, b"", bytes(512))

    for bad in wrong:
        with pytest.raises(ProofError, match="blind signature is not valid"):
            blind_signatures.finalize(_KEY, case["message"], bad, r=r)
    for message, blinding in ((b"other", r), (case["message"], r + 1)):
        with pytest.raises(ProofError):
            blind_signatures.finalize(_KEY, message, signed, r=blinding)


def test_a_blinded_message_is_a_number_below_the_modulus() -> None:
    """0 and the greatest number are signed; the modulus and other lengths are refused."""
    for number in (0, 1, _N - 1):
        signature = int.from_bytes(blind_sign(_private(), number.to_bytes(512)))
        assert number == pow(signature, _E, _N)
    for blinded in (_N.to_bytes(512), b"\xff" * 512, bytes(511), bytes(513), b""):
        with pytest.raises(WireError, match="must have 512 bytes and be below the modulus"):
            blind_sign(_private(), blinded)


def test_a_faulty_private_operation_returns_nothing() -> None:
    """A result that is right modulo one prime only would reveal the other."""
    with pytest.raises(ProofError, match="this machine is faulty") as caught:
        blind_sign(_private(fault=2), (2).to_bytes(512))

    assert all(len(str(argument)) < 100 for argument in caught.value.args)


def test_r_is_drawn_by_rejection() -> None:
    """0, the modulus, larger numbers and multiples of a prime are drawn again."""
    draws = iter([0, _N, _N + 1, 2**4096 - 1, _P, _Q, _N - 1, 5])

    assert _N - 1 == blind_signatures.draw_blind(_N, lambda length: next(draws).to_bytes(length))
    assert [5] == list(draws)


def test_a_key_with_small_factors_is_refused() -> None:
    """The modulus is the product of all odd primes below 1,000."""
    modulus = math.prod(n for n in range(3, 1000, 2) if all(n % d for d in range(3, n, 2)))
    key = RSAPublicNumbers(_E, modulus).public_key()
    r = blind_signatures.draw_blind(modulus, (1).to_bytes)

    with pytest.raises(WireError, match="small factor"):
        blind_signatures.blind(key, b"message", salt=bytes(48), r=r)
