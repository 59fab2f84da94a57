import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import ledger_wire
from common.batch import BatchId
from common.errors import ShuffleDpError, WireError
from common.ledger_entry import FIRST_PREVIOUS_HASH, LedgerEntry
from common.task_digest import TaskDigest
from protos.shuffledp.v1 import analyzer_pb2

_ENTRY = LedgerEntry.chained(
    FIRST_PREVIOUS_HASH,
    entry=1,
    task_digest=TaskDigest(b"d" * 32),
    batch_id=BatchId(b"b" * 16),
    population="staff",
    n_users=100,
    n_refused=2,
    coalition="analyzer",
    epsilon=float("inf"),
    delta=1e-6,
    theorem="formula 1",
    composed_epsilon=0.5,
)


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
