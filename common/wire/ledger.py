"""The analyzer's ledger as protocol buffers; the lengths are the entry's own to check."""

from collections.abc import Sequence
from typing import Final

from common.errors import LedgerError, WireError
from common.messages.batch import BatchId
from common.messages.guarantee import Coalition
from common.messages.ledger_entry import LedgerEntry
from common.task_digest import TaskDigest
from protos.shuffledp.v1 import analyzer_pb2

MAX_LEDGER_ENTRIES: Final = 10_000
"""The most that one call gives."""
MAX_ENTRY_NUMBER: Final = 2**63 - 1


def after_from_wire(message: analyzer_pb2.GetLedgerRequest) -> int:
    """Read after which entry an operator wants to read on. Run by the analyzer."""
    if message.after > MAX_ENTRY_NUMBER:
        raise WireError(f"after is {message.after}; it may be at most {MAX_ENTRY_NUMBER}")
    return message.after


def ledger_to_wire(entries: Sequence[LedgerEntry]) -> analyzer_pb2.GetLedgerResponse:
    """Write entries."""
    return analyzer_pb2.GetLedgerResponse(
        entries=[
            analyzer_pb2.LedgerEntry(
                entry=entry.entry,
                task_digest=entry.task_digest,
                batch_id=entry.batch_id,
                population=entry.population,
                n_users=entry.n_users,
                n_refused=entry.n_refused,
                coalition=entry.coalition,
                epsilon=entry.epsilon,
                delta=entry.delta,
                theorem=entry.theorem,
                composed_epsilon=entry.composed_epsilon,
                previous_hash=entry.previous_hash,
                entry_hash=entry.entry_hash,
            )
            for entry in entries
        ]
    )


def ledger_from_wire(message: analyzer_pb2.GetLedgerResponse) -> list[LedgerEntry]:
    """
    Read entries; whether they make a chain is for `verify` to say.

    Raises:
        WireError: There are more than were asked for, or one is malformed.
    """
    if len(message.entries) > MAX_LEDGER_ENTRIES:
        raise WireError(
            f"{len(message.entries)} ledger entries in one answer; "
            f"at most {MAX_LEDGER_ENTRIES} are read"
        )
    try:
        return [_entry(entry) for entry in message.entries]
    except LedgerError as error:
        raise WireError(str(error)) from error


def _entry(message: analyzer_pb2.LedgerEntry) -> LedgerEntry:
    coalition: Coalition = message.coalition  # type: ignore[assignment]  # checked by the entry
    return LedgerEntry(
        entry=message.entry,
        task_digest=TaskDigest(message.task_digest),
        batch_id=BatchId(message.batch_id),
        population=message.population,
        n_users=message.n_users,
        n_refused=message.n_refused,
        coalition=coalition,
        epsilon=message.epsilon,
        delta=message.delta,
        theorem=message.theorem,
        composed_epsilon=message.composed_epsilon,
        previous_hash=message.previous_hash,
        entry_hash=message.entry_hash,
    )
