import pytest

from common.crypto.signing import SigningIdentity, receipt_holds
from common.messages.submission import Outcome
from common.task_digest import TaskDigest
from shuffler.servicer import Receipts
from tests.support.keys import bulk_receipt_holds

_DIGEST = TaskDigest(b"d" * 32)
_IDENTITY = SigningIdentity.generate()
_RECEIPTS = Receipts(_IDENTITY)
_ON_THE_DISK = {Outcome.STORED, Outcome.REPEATED}


@pytest.mark.parametrize("outcome", Outcome)
def test_nothing_is_signed_that_is_not_on_the_disk(outcome: Outcome) -> None:
    """Stored now, or before; whatever else became of it has no receipt."""
    receipt = _RECEIPTS.one(_DIGEST, b"envelope", outcome)
    signed = receipt_holds(_IDENTITY.public_identity(), _DIGEST, b"envelope", receipt)

    assert (outcome in _ON_THE_DISK) == signed == (receipt != b"")


def test_a_bulk_receipt_leaves_out_what_is_not_on_the_disk() -> None:
    """One of each outcome: two are signed for, in their order; of none there is no receipt."""
    envelopes = [outcome.value.encode() for outcome in Outcome]
    receipt = _RECEIPTS.bulk(_DIGEST, envelopes, list(Outcome))

    stored = [outcome.value.encode() for outcome in Outcome if outcome in _ON_THE_DISK]
    assert bulk_receipt_holds(_IDENTITY.public_identity(), _DIGEST, stored, receipt)
    assert b"" == _RECEIPTS.bulk(_DIGEST, [b"one"], [Outcome.MALFORMED])
