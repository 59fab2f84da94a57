"""
The tables of submissions, used tokens and refusals, and the index that finds repeats.

Each function takes a connection and runs as one transaction in the store's database thread. The
index holds 16 bytes per stored submission: half of the tag of its id, and its group's number. Half
a tag matches one of 10^7 others by chance with probability 10^7 / 2^64, so every match is verified
against the whole tag in the group.
"""

import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.crypto.batch_key import TAG_BYTES, BatchKey
from shuffledp.common.messages.batch import BatchId, BatchState
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.sorted_index import SortedIndex
from shuffledp.shuffler.batch_states import UNPERMUTED_STATES
from shuffledp.shuffler.storage.group import (
    TAGS,
    Arrival,
    Group,
    judge_group,
    merge_small,
    open_tags,
)

ReadTags = Callable[[int], bytes]
"""Returns the tags of the stored group with this number."""


@dataclass(frozen=True, slots=True)
class UsedTokens:
    """The tokens of submissions to one batch, by group, which their submissions use up."""

    connection: sqlite3.Connection
    batch_id: BatchId
    tags: Sequence[Sequence[bytes]]
    """Keyed hashes of the tokens."""

    def use(self, group: int, index: int) -> bool:
        """Use the token of a group's submission; return False if it was used before."""
        return self._insert([self.tags[group][index]]) == 1

    def use_all(self) -> bool:
        """
        Use every token; return False, and use none, if one was used before.

        Cost: less than a fifth of single uses, mostly because the tags are sorted.
        """
        tags = sorted(chain.from_iterable(self.tags))
        self.connection.execute("SAVEPOINT tokens")
        if all_new := self._insert(tags) == len(tags):
            self.connection.execute("RELEASE tokens")
        else:
            self.connection.execute("ROLLBACK TO tokens")
        return all_new

    def _insert(self, tags: Sequence[bytes]) -> int:
        """Insert tags, and return the number of those that were not used."""
        return self.connection.executemany(
            "INSERT OR IGNORE INTO used_tokens VALUES (?, ?)",
            zip(repeat(self.batch_id), tags, strict=False),
        ).rowcount


class Deduplication:
    """The index of one batch's committed submissions."""

    def __init__(self) -> None:
        self._held = SortedIndex()

    def remember(self, tags: bytes | bytearray, numbers: NDArray[np.uint64]) -> None:
        """Add committed submissions' tags, with the number of each tag's group."""
        self._held.add(np.frombuffer(tags, dtype=TAGS)["head"].astype(np.uint64), numbers)

    def classify(
        self,
        groups: Sequence[Group],
        read: ReadTags,
        tokens: UsedTokens | None = None,
        *,
        new: bool,
    ) -> list[list[Outcome]]:
        """
        Return the outcome of each submission, for groups that will be stored together.

        Only a stored submission uses its token and can be repeated. If `new` ones are not accepted,
        submissions are only compared with stored ones.

        Cost: about a microsecond per submission; a repeat also reads a stored group.
        """
        if not groups:
            return []
        tags = np.concatenate([group.entries() for group in groups])
        heads = tags["head"].astype(np.uint64)
        indices, numbers = self._held.find(heads)
        different = not len(indices) and len(set(heads.tolist())) == len(heads)
        if different and new and (tokens is None or tokens.use_all()):
            return [[Outcome.STORED] * len(group) for group in groups]
        known: dict[bytes, bytes] = {}
        for index, number in zip(indices.tolist(), numbers.tolist(), strict=True):
            entries = np.frombuffer(read(number), dtype=TAGS)
            for entry in entries[entries["head"] == heads[index]]:
                raw = entry.tobytes()
                known[raw[:TAG_BYTES]] = raw[TAG_BYTES:]
        return [
            judge_group(group.tags, known, partial(tokens.use, number) if tokens else None, new=new)
            for number, group in enumerate(groups)
        ]


SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS submission_groups (
    batch_id BLOB NOT NULL REFERENCES batches,
    number INTEGER NOT NULL,
    sealed_tags BLOB NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (batch_id, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS used_tokens (
    batch_id BLOB NOT NULL REFERENCES batches,
    token_tag BLOB NOT NULL,
    PRIMARY KEY (batch_id, token_tag)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refusals (
    batch_id BLOB NOT NULL REFERENCES batches,
    outcome TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (batch_id, outcome)
) WITHOUT ROWID;
"""

_DROPPED_AT_ONCE: Final = 64
"""Maximum number of groups deleted in one transaction, to keep it short."""
_LOADED_AT_ONCE: Final = 2**18
"""Minimum number of tags to index together when all stored groups are read."""


def append(
    connection: sqlite3.Connection,
    deduplications: dict[BatchId, Deduplication],
    now: float,
    arrival: Arrival,
) -> tuple[list[list[Outcome]], list[Group]]:
    """
    Insert a batch's new submissions; return the outcomes, and the groups that were stored.

    `now` is in seconds since 1970 UTC.
    """
    batch_id, key, groups = arrival.batch_id, arrival.key, arrival.groups
    query = "SELECT state FROM batches WHERE batch_id = ?"
    state = BatchState(connection.execute(query, (batch_id,)).fetchone()[0])
    if state not in UNPERMUTED_STATES:
        return [[Outcome.CLOSED] * len(group) for group in groups], []
    if batch_id not in deduplications:
        deduplications[batch_id] = _load_tags(connection, batch_id, key)

    def read(number: int) -> bytes:
        query = "SELECT sealed_tags FROM submission_groups WHERE batch_id = ? AND number = ?"
        [sealed_tags] = connection.execute(query, (batch_id, number)).fetchone()
        return open_tags(number, sealed_tags, key)

    new = state is BatchState.COLLECTING and now < arrival.deadline
    tags = arrival.token_tags
    tokens = UsedTokens(connection, batch_id, tags) if tags else None
    outcomes = deduplications[batch_id].classify(groups, read, tokens, new=new)
    parts = [group.stored(found, key) for group, found in zip(groups, outcomes, strict=True)]
    stored = merge_small([part for part in parts if len(part)], key)
    connection.executemany(
        "INSERT INTO submission_groups VALUES (?, ?, ?, ?)",
        [(batch_id, group.number, group.sealed_tags(key), group.sealed) for group in stored],
    )
    connection.execute(
        "UPDATE batches SET n_users = n_users + ? WHERE batch_id = ?",
        (sum(map(len, stored)), batch_id),
    )
    return outcomes, stored


def _load_tags(connection: sqlite3.Connection, batch_id: BatchId, key: BatchKey) -> Deduplication:
    """Index the tags of all stored groups. Cost: a second or two for a million submissions."""
    query = "SELECT number, sealed_tags FROM submission_groups WHERE batch_id = ?"
    deduplication, tags, numbers = Deduplication(), bytearray(), array("Q")
    for number, sealed_tags in connection.execute(query, (batch_id,)):
        opened = open_tags(number, sealed_tags, key)
        tags += opened
        numbers.extend([number] * (len(opened) // TAGS.itemsize))
        if len(numbers) >= _LOADED_AT_ONCE:
            deduplication.remember(tags, np.array(numbers, dtype=np.uint64))
            tags, numbers = bytearray(), array("Q")
    deduplication.remember(tags, np.array(numbers, dtype=np.uint64))
    return deduplication


def drop_some(connection: sqlite3.Connection, batch_id: BatchId) -> bool:
    """Delete some groups and return True; if none are left, delete used tokens and return False."""
    dropped = connection.execute(
        "DELETE FROM submission_groups WHERE batch_id = ? AND number IN "
        "(SELECT number FROM submission_groups WHERE batch_id = ? LIMIT ?)",
        (batch_id, batch_id, _DROPPED_AT_ONCE),
    )
    if dropped.rowcount == 0:
        connection.execute("DELETE FROM used_tokens WHERE batch_id = ?", (batch_id,))
    return dropped.rowcount > 0


def add_refusals(
    connection: sqlite3.Connection, counts: Mapping[BatchId, Counter[Outcome]]
) -> None:
    """Add to the stored counts of refused and repeated submissions."""
    connection.executemany(
        "INSERT INTO refusals VALUES (?, ?, ?) "
        "ON CONFLICT (batch_id, outcome) DO UPDATE SET n = n + excluded.n",
        [
            (batch_id, outcome.value, n)
            for batch_id, counted in counts.items()
            for outcome, n in counted.items()
        ],
    )
