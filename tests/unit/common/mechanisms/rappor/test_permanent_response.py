"""
Vectors of the public clients [GRappor]: client/cpp/encoder_unittest.cc (the constants, and its fake
of the operating system's randomness), client/cpp/openssl_hash_impl_unittest.cc, and
client/python/rappor_test.py, whose intermediate values were computed by hand.
"""

import hashlib
import hmac
from collections.abc import Iterator
from typing import Final

import numpy as np
import pytest

from shuffledp.common.mechanisms.rappor import bloom
from shuffledp.common.mechanisms.rappor import permanent_response as permanent
from shuffledp.common.mechanisms.rappor.permanent_response import Packed

_SECRET: Final = b"client-secret"
_PREFIX: Final = permanent.ENCODER_PREFIX + _SECRET
"""
The source of encoder_unittest.cc has "metric-name" as the encoder id, but its pointer refers to a
freed string, whose memory holds the secret by then.
"""


class _Urandom:
    """The C++ test's fake of randomness: bytes 0, 17, 34, …, each compared with p·256."""

    def __init__(self) -> None:
        self._at = 0

    def mask(self, probability: float, bits: int) -> int:
        mask = 0
        for bit in range(bits):
            mask |= (self._at * 17 % 256 < int(probability * 256)) << bit
            self._at += 1
        return mask


def _cpp_masks(bits: int) -> tuple[int, int]:
    """Return the masks of p = .75 and q = .5, drawn in the C++ order: upper 32 bits first."""
    source = _Urandom()
    unset = is_set = 0
    for _ in range(bits // 32):
        unset = unset << 32 | source.mask(0.75, 32)
        is_set = is_set << 32 | source.mask(0.5, 32)
    return unset, is_set


def _packed(number: int, bits: int) -> Packed:
    return np.frombuffer(number.to_bytes((bits + 7) // 8, "little"), dtype=np.uint8)


def _number(packed: Packed) -> int:
    return int.from_bytes(packed.tobytes(), "little")


def _respond(filled: int, bits: int, weight: int, secret: bytes, prefix: bytes) -> int:
    message = permanent.filter_message(filled, bits, prefix)
    stream = np.frombuffer(permanent.stream(secret, message, bits)[:bits], dtype=np.uint8)
    return _number(permanent.respond(_packed(filled, bits), stream, weight))


def _filter(text: bytes, cohort: int, bits: int, hashes: int) -> int:
    return sum(1 << bit for bit in set(bloom.positions(text, cohort, bits, hashes)))


def _cpp_report(filled: int, bits: int) -> int:
    """Encode as the unit tests' encoder does: f = 1/4, p = 3/4, q = 1/2."""
    response = _respond(filled, bits, 32, _SECRET, _PREFIX)
    unset, shown = _cpp_masks(bits)
    return (unset & ~response) | (shown & response)


def test_narrow_filters_are_encoded_as_by_the_cpp_client() -> None:
    """Reports equal those of EncodeStringUint32, EncodeStringUint32Cohort, EncodeBitsUint32."""
    assert 3 == permanent.cohort_of(_SECRET, 128, 32)
    assert 2281639167 == _cpp_report(_filter(b"foo", 3, 32, 2), 32)
    assert 2281637247 == _cpp_report(_filter(b"foo", 4, 32, 2), 32)
    assert 2784956095 == _cpp_report(0x123, 32)


def test_wide_filters_are_encoded_as_by_the_cpp_client() -> None:
    """Cohort and report, its upper bytes first, equal those of EncodeStringUint64."""
    cohort = permanent.cohort_of(_SECRET, 128, 64)
    report = _cpp_report(_filter(b"foo", cohort, 64, 2), 64)

    assert 93 == cohort
    assert [134, 255, 11, 255, 252, 119, 240, 223] == list(report.to_bytes(8, "big"))


def _cycle_masks(cycle: list[float], probabilities: tuple[float, float]) -> Iterator[int]:
    """Yield the masks of the Python test's fake of randomness, which repeats its draws."""
    for probability in probabilities:
        yield sum((cycle[bit % len(cycle)] < probability) << bit for bit in range(16))


def test_a_text_is_encoded_as_by_the_python_client() -> None:
    """All intermediate values equal those of testEncoder, with f = p = 1/2 and q = 3/4."""
    filled = _filter(b"abc", 0, 16, 2)
    message = permanent.filter_message(filled, 16, b"")
    stream = np.frombuffer(permanent.stream(b"secret", message, 16)[:16], dtype=np.uint8)
    coins, replaced = permanent.masks(stream, 64)
    response = _respond(filled, 16, 64, b"secret", b"")
    unset, shown = _cycle_masks([0.0, 0.6, 0.0], (0.5, 0.75))

    assert 8256 == filled
    assert (50360, 56237) == (_number(coins), _number(replaced))
    assert 57576 == response
    assert 64493 == (unset & ~response) | (shown & response)


def test_wide_streams_match_nist() -> None:
    """The stream equals the 128-bit example of HmacDrbgNist; only the concatenated seed matters."""
    seed = bytes(range(0x37)) + bytes(range(0x20, 0x28))
    expected = (
        "d67b8c1734f46fa3f763cf57c6f9f4f2dc1089bd8bc1f6f023950bfc56176352"
        "08c8501238ad7a4400defee46c640b61af77c2d1a3bfaa90ede5d207406e5403"
    )

    assert 63 == len(seed)
    assert expected == permanent.stream(seed, b"", 64).hex()
    assert expected == permanent.stream(seed[:40], seed[40:], 64).hex()


def test_wide_streams_of_texts_match_the_cpp_client() -> None:
    """The stream equals that of HmacDrbgTextStrings, and a longer one begins with a shorter."""
    forty = permanent.stream(b"key", b"value", 40)

    assert "89d71bb8a37d80c26e639cbd68f3607aa94deef425a7afbbf8d00992af92" == forty[:30].hex()
    assert forty == permanent.stream(b"key", b"value", 64)[:40]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"value", "90fbfcf15e74a36b89dbdb2a721d9aecffdfdddc5c83e27f7592594f71932481"),
        (b"", "5d5d139563c95b5967b9bd9a8c9b233a9dedb45072794cd232dc1b74832607d0"),
        (b"\x00", "8a8dfb9656dccf21b7ea526911243b7568f432815f1cd43a42771f2db4aaa525"),
        (b"\x00a", "5787df47c2c486645a6af89844c34636fc5bb78b1b8729a06ca875567b75c05a"),
    ],
)
def test_narrow_streams_are_one_hmac(message: bytes, expected: str) -> None:
    """Streams equal HmacSha256 of the C++ client, with empty messages and zero bytes, too."""
    assert expected == permanent.stream(b"key", message, 32).hex()
    assert expected == permanent.stream(b"key", message, 5).hex()


@pytest.mark.parametrize(
    ("bits", "expected"),
    [(5, "0000001f"), (32, "0000001f"), (33, "000000001f"), (64, "0" * 14 + "1f")],
)
def test_the_message_is_big_endian_and_four_bytes_at_least(bits: int, expected: str) -> None:
    """The filter follows its prefix, with the highest bits first."""
    assert (
        "016964" + expected
        == permanent.filter_message(0x1F, bits, permanent.ENCODER_PREFIX + b"id").hex()
    )
    assert expected == permanent.filter_message(0x1F, bits, b"").hex()


def test_scopes_have_independent_secrets() -> None:
    """Each is the HMAC-SHA256 of a label and the scope, which may be empty."""
    device = b"d" * 32
    secrets = {permanent.scope_secret(device, scope) for scope in (b"", b"a", b"b", b"ab")}

    assert 4 == len(secrets)
    assert hmac.new(
        device, b"shuffledp v1 permanent responsea", hashlib.sha256
    ).digest() == permanent.scope_secret(device, b"a")
    assert permanent.scope_secret(b"e" * 32, b"a") not in secrets


@pytest.mark.parametrize("bits", [8, 40])
def test_the_response_follows_the_permanent_weight(bits: int) -> None:
    """A weight of 0 replaces no bit, and 127 nearly every bit."""
    assert 0x5A == _respond(0x5A, bits, 0, b"secret", _PREFIX)
    kept = [_respond(filled, 8, 127, bytes([filled]), _PREFIX) == filled for filled in range(200)]
    assert sum(kept) < 10  # 0.8 are expected; these secrets are fixed
