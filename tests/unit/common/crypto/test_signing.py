import pickle

import pytest

from common.crypto.signing import PublicIdentity, SignedTask, SigningIdentity
from common.errors import ProofError, WireError


def test_only_the_identity_that_signed_verifies() -> None:
    """Another identity, other bytes or a changed signature are refused."""
    identity, other = SigningIdentity.generate(), SigningIdentity.generate()
    signed = identity.sign(b"task")
    identity.public_identity().verify(signed)

    with pytest.raises(ProofError):
        other.public_identity().verify(signed)
    for changed in (
        SignedTask(task_bytes=b"tasl", signature=signed.signature),
        SignedTask(task_bytes=b"task", signature=bytes(64)),
    ):
        with pytest.raises(ProofError):
            identity.public_identity().verify(changed)


def test_an_identity_neither_prints_nor_pickles() -> None:
    """Its repr shows a fingerprint of the public half."""
    identity = SigningIdentity.generate()

    assert identity.private_bytes().hex() not in repr(identity)
    with pytest.raises(TypeError):
        pickle.dumps(identity)


def test_a_pinned_identity_is_64_hexadecimal_digits() -> None:
    """It is read back as it was written; anything else is refused."""
    public = SigningIdentity.generate().public_identity()

    assert public == PublicIdentity.from_hex(public.raw.hex(), "it")
    for text in ("", "zz" * 32, public.raw.hex()[:-1], public.raw.hex() + "00"):
        with pytest.raises(WireError):
            PublicIdentity.from_hex(text, "it")
