import hashlib

import pytest

from shuffledp.common.crypto import signing
from shuffledp.common.errors import ProofError, WireError
from shuffledp.common.task_digest import TaskDigest
from tests.support.keys import is_valid_bulk_receipt


def test_only_the_identity_that_signed_verifies() -> None:
    """Another identity, other bytes or a changed signature are refused."""
    identity, other = signing.SigningIdentity.generate(), signing.SigningIdentity.generate()
    signed = identity.sign(b"task")
    identity.public_identity().verify(signed)

    with pytest.raises(ProofError):
        other.public_identity().verify(signed)
    for changed in (
        signing.SignedTask(task_bytes=b"tasl", signature=signed.signature),
        signing.SignedTask(task_bytes=b"task", signature=bytes(64)),
    ):
        with pytest.raises(ProofError):
            identity.public_identity().verify(changed)


def test_a_pinned_identity_is_64_hexadecimal_digits() -> None:
    """A pinned identity is read back as it was written; anything else is refused."""
    public = signing.SigningIdentity.generate().public_identity()

    assert public == signing.PublicIdentity.from_hex(public.raw.hex(), "it")
    for text in ("", "zz" * 32, public.raw.hex()[:-1], public.raw.hex() + "00"):
        with pytest.raises(WireError, match=r"^it must be 64 hexadecimal digits"):
            signing.PublicIdentity.from_hex(text, "it")


_DIGEST, _OTHER = TaskDigest(b"d" * 32), TaskDigest(b"e" * 32)
_SHUFFLER = signing.SigningIdentity.generate()
_PINNED = _SHUFFLER.public_identity()


def test_no_identity_has_a_small_order_or_a_second_encoding() -> None:
    """All 14 encodings of the eight points [CGN20], and others of a y of at least 2^255 - 19."""
    field = 2**255 - 19
    of_eight = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
    for y in (0, 1, field - 1, of_eight, field - of_eight, field, field + 1, field + 18):
        for sign in (0, 2**255):
            with pytest.raises(WireError, match="large order"):
                signing.PublicIdentity((y | sign).to_bytes(32, "little"))


def test_a_receipt_is_for_one_envelope_of_one_task_by_one_shuffler() -> None:
    """A receipt fails for another envelope, task or shuffler, and invalid bytes fail."""
    for wrong in (b"", bytes(63), bytes(64), bytes(65)):
        assert not signing.is_valid_receipt(_PINNED, _DIGEST, b"envelope", wrong)
    receipt = signing.sign_receipt(_SHUFFLER, _DIGEST, b"envelope")
    message = _DIGEST + hashlib.sha256(b"envelope").digest()

    assert _PINNED.is_valid_signature(b"shuffledp v1 receipt", message, receipt)
    assert signing.is_valid_receipt(_PINNED, _DIGEST, b"envelope", receipt)
    assert not signing.is_valid_receipt(_PINNED, _DIGEST, b"envelopf", receipt)
    assert not signing.is_valid_receipt(_PINNED, _OTHER, b"envelope", receipt)
    assert not signing.is_valid_receipt(
        signing.SigningIdentity.generate().public_identity(), _DIGEST, b"envelope", receipt
    )


def test_a_bulk_receipt_is_for_these_envelopes_in_this_order() -> None:
    """Other envelopes, or another order, do not verify."""
    stored = [b"one", b"two", b"three"]
    receipt = signing.sign_bulk_receipt(_SHUFFLER, _DIGEST, stored)

    assert is_valid_bulk_receipt(_PINNED, _DIGEST, stored, receipt)
    for others in (stored[::-1], stored[:2], [*stored, b"four"], [b"onetwo", b"three"]):
        assert not is_valid_bulk_receipt(_PINNED, _DIGEST, others, receipt)


def test_signatures_of_different_kinds_are_separated() -> None:
    """A task, a receipt and a bulk receipt each have their own label."""
    single = signing.sign_receipt(_SHUFFLER, _DIGEST, b"envelope")
    bulk = signing.sign_bulk_receipt(_SHUFFLER, _DIGEST, [b"envelope"])
    task = _SHUFFLER.sign(_DIGEST + signing.envelope_hash(b"envelope")).signature

    assert not is_valid_bulk_receipt(_PINNED, _DIGEST, [b"envelope"], single)
    assert not signing.is_valid_receipt(_PINNED, _DIGEST, b"envelope", bulk)
    assert not signing.is_valid_receipt(_PINNED, _DIGEST, b"envelope", task)
