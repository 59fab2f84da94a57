from typing import Any

import pytest

from shuffledp.common.crypto.hpke import (
    DEFAULT_SUITE,
    SUITES,
    HpkePrivateKey,
    HpkePublicKey,
    envelope_context,
    report_context,
    suite_named,
)
from shuffledp.common.errors import WireError
from shuffledp.common.task_digest import TaskDigest
from tests.support.tables import table
from tests.support.vectors import vectors

_FILES = [vectors(name) for name in ("hpke", *(f"hpke-{suite}" for suite in list(SUITES)[1:]))]
_VECTORS = [{"suite": file["suite"]} | case for file in _FILES for case in file["cases"]]
_DIGEST = TaskDigest(bytes(32))
_HYBRID = "mlkem768x25519-hkdf-sha256-chacha20poly1305"


@table("case", _VECTORS)
def test_every_vector_opens_or_fails_as_it_says(case: dict[str, Any]) -> None:
    """A wrong key, role, digest, bit or length gives one error with one message."""
    assert sorted(SUITES) == sorted(file["suite"] for file in _FILES)
    key = HpkePrivateKey(case["suite"], bytes.fromhex(case["private_key"]))
    context_of = {(1, 3): report_context, (1, 2): envelope_context}
    roles, digest = (case["sender"], case["recipient"]), bytes.fromhex(case["task_digest"])
    context = context_of[roles](TaskDigest(digest))
    sealed = bytes.fromhex(case["sealed"])

    if case["plaintext"] is not None:
        assert bytes.fromhex(case["plaintext"]) == key.open(sealed, context)
        return
    with pytest.raises(WireError) as caught:
        key.open(sealed, context)
    assert str(caught.value) == "a ciphertext does not open"


@pytest.mark.parametrize(
    "suite",
    [pytest.param(suite, marks=pytest.mark.slow if "mlkem" in suite else ()) for suite in SUITES],
)
def test_no_changed_bit_of_a_ciphertext_opens(suite: str) -> None:
    """X25519's ignored top bit is no exception: dropping equal ciphertexts drops every repeat."""
    key, context = HpkePrivateKey.generate(suite), report_context(_DIGEST)
    sealed, opener = key.public_key().sealer(context)(b"12 bytes here"), key.opener(context)
    opened = []
    for bit in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << (bit % 8)
        opened.append(opener(bytes(changed)))

    assert b"12 bytes here" == opener(sealed)
    assert {None} == set(opened)


@pytest.mark.parametrize("suite", SUITES)
def test_a_ciphertext_of_one_suite_opens_in_no_other(suite: str) -> None:
    """The same private bytes do not open it in another suite; key ids differ by suite too."""
    key, context = HpkePrivateKey.generate(suite), report_context(_DIGEST)
    sealed = key.public_key().sealer(context)(b"text")

    assert [suite] == [
        name
        for name in SUITES
        if HpkePrivateKey(name, key.private_bytes()).opener(context)(sealed) == b"text"
    ]
    raw = HpkePrivateKey.generate(DEFAULT_SUITE).public_key().raw
    ids = {HpkePublicKey(name, raw).key_id for name in list(SUITES)[:2]}
    assert (2, {32}) == (len(ids), {len(key_id) for key_id in ids})


@pytest.mark.parametrize(
    ("suite", "key_bytes", "overhead"),
    list(zip(SUITES, [32, 32, 1216], [48, 48, 1136], strict=True)),
)
def test_lengths_follow_from_the_suite(suite: str, key_bytes: int, overhead: int) -> None:
    """Sealing one plaintext twice gives two ciphertexts of one length; both layers differ."""
    public, contexts = HpkePrivateKey.generate(suite).public_key(), [report_context(_DIGEST)]
    contexts.append(envelope_context(_DIGEST))
    sealed = {public.sealer(context)(b"x" * 12) for context in contexts * 2}

    assert 4 == len(sealed)
    assert {12 + overhead} == set(map(len, sealed))
    assert (key_bytes, overhead) == (len(public.raw), suite_named(suite).overhead_bytes)
    assert key_bytes == suite_named(suite).public_key_bytes
    assert (2, 1) == (len(set(contexts)), len(set(map(len, contexts))))


def test_malformed_keys_digests_and_suites_are_refused() -> None:
    """Wrong lengths, the all-zero point, and coefficients over 3328 [FIPS203, Section 7.2]."""
    for length in (0, 31, 33):
        for make in (HpkePublicKey, HpkePrivateKey):
            with pytest.raises(WireError):
                make(DEFAULT_SUITE, bytes(length))
        with pytest.raises(WireError):
            report_context(TaskDigest(bytes(length)))
    with pytest.raises(WireError):
        HpkePublicKey(DEFAULT_SUITE, bytes(32)).sealer(report_context(_DIGEST))(b"")
    with pytest.raises(WireError, match=DEFAULT_SUITE):
        suite_named("rot13")
    with pytest.raises(WireError, match="public key is not valid in the suite"):
        HpkePublicKey(_HYBRID, b"\xff" * 1216)
    with pytest.raises(WireError, match=r"has 32 bytes; in the suite mlkem.* must have 1216"):
        HpkePublicKey(_HYBRID, bytes(32))


def test_the_hybrids_keys_are_those_of_the_published_vector() -> None:
    """The first vector of draft-connolly-cfrg-xwing-kem: a seed, and the ends of its public key."""
    seed = bytes.fromhex("7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26")
    public = HpkePrivateKey(_HYBRID, seed).public_key().raw

    assert "e2236b35a8c24b39b10aa1323a96a919a2ced88400633a7b07131713fc14b2b5" == public[:32].hex()
    assert "859edb06eff389b27dce59844570216223593d4ba32d9abac8cd049040ef6534" == public[-32:].hex()
