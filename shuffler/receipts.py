"""Receipts for stored submissions. Pure."""

from collections.abc import Sequence

from common.crypto.signing import SigningIdentity, sign_bulk_receipt, sign_receipt
from common.messages.submission import STORED_OUTCOMES, Outcome
from common.task_digest import TaskDigest


class Receipts:
    """Signs receipts with the shuffler's identity. Only stored submissions get one."""

    def __init__(self, identity: SigningIdentity) -> None:
        self._identity = identity

    def sign(self, digest: TaskDigest, envelope: bytes, outcome: Outcome) -> bytes:
        """Return the receipt for a submission; empty if it is not stored."""
        stored = outcome in STORED_OUTCOMES
        return sign_receipt(self._identity, digest, envelope) if stored else b""

    def sign_bulk(
        self, digest: TaskDigest, envelopes: Sequence[bytes], outcomes: Sequence[Outcome]
    ) -> bytes:
        """Return one receipt for all stored submissions, in order; empty if there are none."""
        pairs = zip(envelopes, outcomes, strict=True)
        stored = [envelope for envelope, outcome in pairs if outcome in STORED_OUTCOMES]
        return sign_bulk_receipt(self._identity, digest, stored) if stored else b""
