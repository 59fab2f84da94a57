import pytest

from common.crypto.receipt import (
    envelope_hash,
    receipt_holds,
    sign_bulk_receipt,
    sign_receipt,
)
from common.crypto.signing import SigningIdentity
from common.task_digest import TaskDigest
from tests.support.keys import bulk_receipt_holds

_DIGEST, _OTHER = TaskDigest(b"d" * 32), TaskDigest(b"e" * 32)
_SHUFFLER = SigningIdentity.generate()
_PINNED = _SHUFFLER.public_identity()


def test_a_receipt_is_for_one_envelope_of_one_task_by_one_shuffler() -> None:
    """Anything else is none."""
    receipt = sign_receipt(_SHUFFLER, _DIGEST, b"envelope")

    assert receipt_holds(_PINNED, _DIGEST, b"envelope", receipt)
    assert not receipt_holds(_PINNED, _DIGEST, b"envelopf", receipt)
    assert not receipt_holds(_PINNED, _OTHER, b"envelope", receipt)
    assert not receipt_holds(
        SigningIdentity.generate().public_identity(), _DIGEST, b"envelope", receipt
    )


@pytest.mark.parametrize("receipt", [b"", bytes(63), bytes(64), bytes(65)])
def test_what_is_no_signature_is_no_receipt(receipt: bytes) -> None:
    """Of any length."""
    assert not receipt_holds(_PINNED, _DIGEST, b"envelope", receipt)


def test_a_bulk_receipt_is_for_these_envelopes_in_this_order() -> None:
    """None more, none less."""
    stored = [b"one", b"two", b"three"]
    receipt = sign_bulk_receipt(_SHUFFLER, _DIGEST, stored)

    assert bulk_receipt_holds(_PINNED, _DIGEST, stored, receipt)
    for others in (stored[::-1], stored[:2], [*stored, b"four"], [b"onetwo", b"three"]):
        assert not bulk_receipt_holds(_PINNED, _DIGEST, others, receipt)


def test_no_signature_of_one_kind_passes_for_another() -> None:
    """A task, a receipt and a bulk receipt each have a label of their own."""
    one = sign_receipt(_SHUFFLER, _DIGEST, b"envelope")
    bulk = sign_bulk_receipt(_SHUFFLER, _DIGEST, [b"envelope"])
    task = _SHUFFLER.sign(_DIGEST + envelope_hash(b"envelope")).signature

    assert not bulk_receipt_holds(_PINNED, _DIGEST, [b"envelope"], one)
    assert not receipt_holds(_PINNED, _DIGEST, b"envelope", bulk)
    assert not receipt_holds(_PINNED, _DIGEST, b"envelope", task)
