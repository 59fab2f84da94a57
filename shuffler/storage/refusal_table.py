"""
The table of what was not taken into a batch: a number for each cause, and nothing of whose it was.

Functions of a connection, run by the spool in its database's thread.
"""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import Final

from common.messages.batch import BatchId
from common.messages.submission import Outcome

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS refusals (
    batch_id BLOB NOT NULL REFERENCES batches,
    outcome TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (batch_id, outcome)
) WITHOUT ROWID;
"""


_KNOWN: Final = frozenset(outcome.value for outcome in Outcome)


def add(connection: sqlite3.Connection, refused: Mapping[BatchId, Counter[Outcome]]) -> None:
    """Add to what was counted before."""
    connection.executemany(
        "INSERT INTO refusals VALUES (?, ?, ?) "
        "ON CONFLICT (batch_id, outcome) DO UPDATE SET n = n + excluded.n",
        [
            (batch_id, outcome.value, n)
            for batch_id, counted in refused.items()
            for outcome, n in counted.items()
        ],
    )


def of(connection: sqlite3.Connection, batch_id: BatchId) -> Counter[Outcome]:
    """Give what was counted of a batch; what only a later version knows is left out."""
    rows = connection.execute("SELECT outcome, n FROM refusals WHERE batch_id = ?", (batch_id,))
    return Counter({Outcome(outcome): n for outcome, n in rows if outcome in _KNOWN})
