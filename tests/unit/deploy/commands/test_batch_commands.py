"""`shuffledp batch` without services: what it prints."""

import pytest
from syrupy.assertion import SnapshotAssertion

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.deploy.commands.batch import describe_decision
from tests.support.ledger_entries import decision_entry, first_entry


@pytest.mark.parametrize("decision", ["release", "drop"])
def test_a_decision_is_printed_with_its_consequence(
    decision: str, snapshot: SnapshotAssertion
) -> None:
    """Lines are not folded, so that a note can be copied."""
    identity = SigningIdentity(bytes(32))
    entry = decision_entry(identity, first_entry(), decision=decision, note="[junk] " * 20)

    assert snapshot == describe_decision(entry)
