"""The shuffler's receipts: signed once what they are about is on the disk."""

from collections.abc import Sequence
from typing import Final

from common.crypto.receipt import sign_bulk_receipt, sign_receipt
from common.crypto.signing import SigningIdentity
from common.messages.submission import Outcome
from common.task_digest import TaskDigest

_ON_THE_DISK: Final = frozenset({Outcome.STORED, Outcome.REPEATED})


class Receipts:
    """Signs for what became of submissions. Asked after the commit only."""

    def __init__(self, identity: SigningIdentity) -> None:
        self._identity = identity

    def one(self, digest: TaskDigest, envelope: bytes, outcome: Outcome) -> bytes:
        """Give a receipt for a submission; empty if it is not on the disk."""
        if outcome not in _ON_THE_DISK:
            return b""
        return sign_receipt(self._identity, digest, envelope)

    def bulk(
        self, digest: TaskDigest, envelopes: Sequence[bytes], outcomes: Sequence[Outcome]
    ) -> bytes:
        """Give one receipt for all that are on the disk, in their order; empty if none is."""
        stored = envelopes
        if not _ON_THE_DISK.issuperset(outcomes):
            stored = [
                envelope
                for envelope, outcome in zip(envelopes, outcomes, strict=True)
                if outcome in _ON_THE_DISK
            ]
        return sign_bulk_receipt(self._identity, digest, stored) if stored else b""
