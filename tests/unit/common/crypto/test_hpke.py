import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from common.crypto.hpke import (
    HpkePrivateKey,
    HpkePublicKey,
    Role,
    SealContext,
    envelope_context,
    report_context,
)
from common.crypto.suites import DEFAULT_SUITE, SUITES, suite_named
from common.errors import WireError
from common.task_digest import TaskDigest

_FILES = [
    json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parents[3] / "vectors").glob("hpke*.json"))
]
_VECTORS = [{"suite": file["suite"]} | case for file in _FILES for case in file["cases"]]
_DIGEST = TaskDigest(bytes(32))


def test_every_suite_has_vectors() -> None:
    """None is left out."""
    assert sorted(SUITES) == sorted(file["suite"] for file in _FILES)


@pytest.mark.parametrize("case", _VECTORS, ids=lambda case: f"{case['suite']}: {case['name']}")
def test_every_vector_opens_or_fails_as_it_says(case: dict[str, Any]) -> None:
    """Wrong key, role or digest, any flipped bit, any other length: one error, one message."""
    key = HpkePrivateKey(case["suite"], bytes.fromhex(case["private_key"]))
    context = SealContext(
        sender=Role(case["sender"]),
        recipient=Role(case["recipient"]),
        task_digest=TaskDigest(bytes.fromhex(case["task_digest"])),
    )
    sealed = bytes.fromhex(case["sealed"])

    if case["plaintext"] is not None:
        assert bytes.fromhex(case["plaintext"]) == key.open(sealed, context)
        return
    with pytest.raises(WireError) as caught:
        key.open(sealed, context)
    assert str(caught.value) == "a ciphertext does not open"


@pytest.mark.parametrize("suite", SUITES)
def test_no_changed_bit_of_a_ciphertext_opens(suite: str) -> None:
    """
    Neither in the encapsulated key, X25519's ignored top bit included, nor in what follows it: so
    that dropping ciphertexts that came before catches every repeat of a report.
    """
    key, context = HpkePrivateKey.generate(suite), report_context(_DIGEST)
    sealed, opener = key.public_key().seal(b"12 bytes here", context), key.opener(context)
    opened = []
    for bit in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << (bit % 8)
        opened.append(opener(bytes(changed)))

    assert b"12 bytes here" == opener(sealed)
    assert {None} == set(opened)


@pytest.mark.parametrize("suite", SUITES)
def test_a_ciphertext_of_one_suite_opens_in_no_other(suite: str) -> None:
    """Not even where the private key is the same 32 bytes."""
    key, context = HpkePrivateKey.generate(suite), report_context(_DIGEST)
    sealed = key.public_key().seal(b"text", context)

    assert [suite] == [
        name
        for name in SUITES
        if HpkePrivateKey(name, key.private_bytes()).opener(context)(sealed) == b"text"
    ]


@pytest.mark.parametrize(("suite", "overhead"), list(zip(SUITES, [48, 48, 1136], strict=True)))
def test_sealing_adds_a_fixed_length_and_never_repeats(suite: str, overhead: int) -> None:
    """Two seals of one plaintext differ, and are longer by the same number of bytes."""
    key = HpkePrivateKey.generate(suite)
    seal = key.public_key().sealer(report_context(_DIGEST))
    first, second = seal(b"x" * 12), seal(b"x" * 12)

    assert first != second
    assert len(first) == len(second) == 12 + overhead
    assert overhead == suite_named(suite).overhead_bytes


def test_the_two_layers_have_different_contexts_of_one_length() -> None:
    """Role bytes and digest have fixed places, so no context is a prefix of another."""
    report, envelope = report_context(_DIGEST).info(), envelope_context(_DIGEST).info()

    assert report != envelope
    assert len(report) == len(envelope)


def test_nothing_is_sealed_to_a_key_of_small_order() -> None:
    """The all-zero point is refused, not silently used."""
    with pytest.raises(WireError):
        HpkePublicKey(DEFAULT_SUITE, bytes(32)).seal(b"", report_context(_DIGEST))


@pytest.mark.parametrize("length", [0, 31, 33])
def test_keys_and_digests_have_one_length(length: int) -> None:
    """Anything else is refused where it is read."""
    with pytest.raises(WireError):
        HpkePublicKey(DEFAULT_SUITE, bytes(length))
    with pytest.raises(WireError):
        HpkePrivateKey(DEFAULT_SUITE, bytes(length))
    with pytest.raises(WireError):
        report_context(TaskDigest(bytes(length)))


@pytest.mark.parametrize("suite", SUITES)
def test_a_private_key_neither_prints_nor_pickles(suite: str) -> None:
    """Its repr shows a fingerprint of the public half, which does travel."""
    key = HpkePrivateKey.generate(suite)

    assert key.private_bytes().hex() not in repr(key)
    assert repr(key.public_key()).removeprefix("HpkePublicKey") in repr(key).replace("of ", "")
    with pytest.raises(TypeError, match="not pickled by accident"):
        pickle.dumps(key)
    assert key.public_key().raw == pickle.loads(pickle.dumps(key.public_key())).raw  # noqa: S301  # own
    assert repr(key.private_bytes()) not in repr(key)


def test_a_key_id_is_bound_to_the_suite() -> None:
    """The same 32 bytes are two keys in two suites, of 32-byte ids."""
    first, second = list(SUITES)[:2]
    raw = HpkePrivateKey.generate(first).public_key().raw
    ids = {HpkePublicKey(suite, raw).key_id for suite in (first, second)}

    assert 2 == len(ids)
    assert {32} == {len(key_id) for key_id in ids}
