"""A ledger's first entry, for tests."""

from typing import Any

from common.messages.batch import BatchId
from common.messages.ledger_entry import FIRST_PREVIOUS_HASH, LedgerEntry
from common.task_digest import TaskDigest


def first_entry(**changes: Any) -> LedgerEntry:
    """Return a valid first entry; changes are fields of it."""
    fields: dict[str, Any] = {
        "entry": 1,
        "task_digest": TaskDigest(b"\xd1" * 32),
        "batch_id": BatchId(b"b" * 16),
        "population": "staff",
        "n_users": 100,
        "n_refused": 2,
        "coalition": "analyzer",
        "epsilon": float("inf"),
        "delta": 1e-6,
        "theorem": "formula 1",
        "composed_epsilon": 0.51234,
    }
    return LedgerEntry.chained(FIRST_PREVIOUS_HASH, **fields | changes)
