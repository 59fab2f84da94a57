import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import ShuffleDpError, WireError
from common.wire import ledger as ledger_wire
from protos.shuffledp.v1 import analyzer_pb2
from tests.support.ledger_entries import first_entry

_ENTRY = first_entry()


def test_entries_are_read_back_as_they_were_written() -> None:
    """Every field, so that their hashes still fit."""
    written = ledger_wire.ledger_to_wire([_ENTRY]).SerializeToString()
    [again] = ledger_wire.ledger_from_wire(analyzer_pb2.GetLedgerResponse.FromString(written))

    assert _ENTRY == again
    assert again.expected_hash() == again.entry_hash


def test_an_answer_has_a_limit() -> None:
    """10,001 entries are one too many; so is a number that no entry can have."""
    with pytest.raises(WireError, match="10001 ledger entries"):
        ledger_wire.ledger_from_wire(ledger_wire.ledger_to_wire([_ENTRY] * 10_001))
    with pytest.raises(WireError, match="after is"):
        ledger_wire.after_from_wire(analyzer_pb2.GetLedgerRequest(after=2**63))


@given(raw=st.binary(max_size=200))
def test_any_answer_is_a_ledger_or_a_foreseen_error(raw: bytes) -> None:
    """Whatever protobuf accepts."""
    try:
        parsed = analyzer_pb2.GetLedgerResponse.FromString(raw)
    except Exception:  # noqa: BLE001  # protobuf's own refusal never reaches the project
        return
    try:
        ledger_wire.ledger_from_wire(parsed)
    except ShuffleDpError:
        return


@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("epsilon", -math.inf),
        ("epsilon", -5.0),
        ("delta", -1.0),
        ("delta", 1.5),
        ("delta", math.inf),
        ("composed_epsilon", -7.0),
        ("composed_epsilon", math.nan),
    ],
)
def test_an_entry_that_costs_less_than_nothing_at_all_is_malformed(
    name: str, figure: float
) -> None:
    """Refused before the chain is walked, as is a delta above 1."""
    message = ledger_wire.ledger_to_wire([_ENTRY])
    setattr(message.entries[0], name, figure)

    with pytest.raises(WireError, match=rf"entry 1: {name} is "):
        ledger_wire.ledger_from_wire(message)
