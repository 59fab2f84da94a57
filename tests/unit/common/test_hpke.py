import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from common.errors import KeyFormatError, SealError, WireError
from common.hpke import (
    OVERHEAD_BYTES,
    HpkePrivateKey,
    HpkePublicKey,
    Role,
    SealContext,
    envelope_context,
    report_context,
)
from common.task_digest import TaskDigest

_VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors" / "hpke.json").read_text(encoding="utf-8")
)["cases"]
_DIGEST = TaskDigest(bytes(32))


@pytest.mark.parametrize("case", _VECTORS, ids=lambda case: case["name"])
def test_every_vector_opens_or_fails_as_it_says(case: dict[str, Any]) -> None:
    """Wrong key, role or digest, any flipped bit, any other length: one error, one message."""
    key = HpkePrivateKey(bytes.fromhex(case["private_key"]))
    context = SealContext(
        sender=Role(case["sender"]),
        recipient=Role(case["recipient"]),
        task_digest=TaskDigest(bytes.fromhex(case["task_digest"])),
    )
    sealed = bytes.fromhex(case["sealed"])

    if case["plaintext"] is not None:
        assert bytes.fromhex(case["plaintext"]) == key.open(sealed, context)
        return
    with pytest.raises(SealError) as caught:
        key.open(sealed, context)
    assert str(caught.value) == "a ciphertext does not open"


def test_sealing_adds_a_fixed_length_and_never_repeats() -> None:
    """Two seals of one plaintext differ, and are longer by the same 48 bytes."""
    key = HpkePrivateKey.generate()
    seal = key.public_key().sealer(report_context(_DIGEST))
    first, second = seal(b"x" * 12), seal(b"x" * 12)

    assert first != second
    assert len(first) == len(second) == 12 + OVERHEAD_BYTES


def test_the_two_layers_have_different_contexts_of_one_length() -> None:
    """Role bytes and digest have fixed places, so no context is a prefix of another."""
    report, envelope = report_context(_DIGEST).info(), envelope_context(_DIGEST).info()

    assert report != envelope
    assert len(report) == len(envelope)


def test_nothing_is_sealed_to_a_key_of_small_order() -> None:
    """The all-zero point is refused, not silently used."""
    with pytest.raises(KeyFormatError):
        HpkePublicKey(bytes(32)).seal(b"", report_context(_DIGEST))


@pytest.mark.parametrize("length", [0, 31, 33])
def test_keys_and_digests_have_one_length(length: int) -> None:
    """Anything else is refused where it is read."""
    with pytest.raises(KeyFormatError):
        HpkePublicKey(bytes(length))
    with pytest.raises(KeyFormatError):
        HpkePrivateKey(bytes(length))
    with pytest.raises(WireError):
        report_context(TaskDigest(bytes(length)))


def test_a_private_key_neither_prints_nor_pickles() -> None:
    """Its repr shows a fingerprint of the public half."""
    key = HpkePrivateKey.generate()

    assert key.private_bytes().hex() not in repr(key)
    assert repr(key.public_key()).removeprefix("HpkePublicKey") in repr(key).replace("of ", "")
    with pytest.raises(TypeError):
        pickle.dumps(key)
