"""The interfaces of the stores of a shuffler's batches and submissions, and their values."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, ClassVar, Final, Protocol

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import BatchStateError, DamagedStorageError, UnknownTaskError
from shuffledp.common.messages.batch import BatchId, BatchState
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime.database import numbers_from_text
from shuffledp.common.runtime.shared_calls import GroupCommit
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.batch_states import FINAL_STATES, UNPERMUTED_STATES
from shuffledp.shuffler.storage.group import Arrival, joined

MAY_BE_SENT: Final = "UPDATE batches SET state = 'sent' WHERE state = 'permuted';"
"""The step of a schema from before the state "sent": the analyzer may have any permuted batch."""
Row = tuple[Any, ...]
_STATES: Final = {
    stored: state for state in BatchState for stored in (state.value, state.value.encode())
}
"""States by stored text or bytes: in SQLite damaged bytes may not be text, so that a query of all
rows as text would fail."""
_OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """One row of the table of batches."""

    batch_id: BatchId
    signed: SignedTask
    state: BatchState
    n_users: int
    n_reports: int
    """Number of reports in the permuted batch; 0 before it is permuted."""
    by_length: tuple[int, ...]
    """Number of submissions of each of the task's lengths; empty before it is permuted."""
    shuffle_seconds: float
    n_discarded: int = 0
    """Layers that a relay discarded, as they do not open or repeat others."""
    part_hashes: bytes = field(default=b"", repr=False)
    """SHA-256 of every part of the permuted batch, concatenated; empty before it is permuted."""
    n_layers: int = 0
    """Number of layers that arrived at a relay."""

    def check_moved(self, changed: Row | None, state: BatchState) -> int:
        """
        Return the number of users, which a changed row holds and which may have grown.

        Run in the transaction. Raises BatchStateError if the state was another (`changed` is None)
        or, with a final `state`, the number of users.
        """
        if changed is None:
            raise BatchStateError(f"the batch is no longer {self.state.value}")
        n_users: int = changed[0]
        if state in FINAL_STATES and n_users != self.n_users:
            raise BatchStateError(
                f"the batch had {self.n_users} users when it was read; it now has {n_users}"
            )
        return n_users


def _stored_batch(rows: Sequence[Row]) -> StoredBatch:
    """Build a batch from the one row; raise the errors of `SubmissionStore.get`."""
    if not rows:
        raise UnknownTaskError(
            "this shuffler has no batch for this task: no device has asked for it yet"
        )
    [(batch_id, digest, task, signature, state, n_users, n_reports, by_length, *rest)] = rows
    shuffle_seconds, n_discarded, part_hashes, n_layers = rest
    signed = SignedTask(task_bytes=task, signature=signature)
    if signed.digest() != digest:
        raise DamagedStorageError("a task in the shuffler's store is damaged")
    if state not in _STATES:
        raise DamagedStorageError(
            "the state of a batch in the shuffler's store is damaged, or of a later version"
        )
    return StoredBatch(
        batch_id=BatchId(batch_id),
        signed=signed,
        state=_STATES[state],
        n_users=n_users,
        n_reports=n_reports,
        by_length=numbers_from_text(by_length),
        shuffle_seconds=shuffle_seconds,
        n_discarded=n_discarded,
        part_hashes=part_hashes,
        n_layers=n_layers,
    )


Observer = Callable[[BatchId, BatchState, BatchState, int, int], None]
"""Called after every stored change of a batch's state with the batch's id, its old state, its new
one, its number of users at that moment, and of layers that a relay has discarded."""


class GroupSource(Protocol):
    """The stored groups of a batch, for worker processes. Picklable."""

    def read(self, batch_id: BatchId, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """
        Yield a batch's groups with numbers of `first` to `last`, without it, in ascending order.

        Each is its number and sealed reports. Raises StorageError if the database cannot be read.
        """


class Rows(Protocol):
    """The database of a store."""

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        """Run one statement, with a ? for each value, and return its rows."""

    def close(self) -> None:
        """Finish all queued transactions, and close the database."""


class BatchStore(ABC):
    """
    A shuffler's batches and their states.

    Every method may raise StorageError; nothing that it should have written is then promised, and
    it is safe to retry.
    """

    BATCHES: ClassVar[str]
    """Query of every batch: its id, task digest, task, signature, state and numbers."""
    ID: ClassVar[str] = "?"
    """Placeholder of a batch's id, given as bytes."""
    STATES: ClassVar[str]
    """Query of every batch's id and state."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.observer: Observer = lambda *_: None
        self.changed = asyncio.Event()
        """Set when this process has stored submissions or the state of a batch."""

    async def get(self, digest: TaskDigest) -> StoredBatch:
        """
        Look up the batch of a task.

        Raises:
            UnknownTaskError: The task has no batch.
            DamagedStorageError: The batch's row is damaged, or of a later version.
        """
        query = f"{self.BATCHES} WHERE task_digest = ?"
        return _stored_batch(await self._rows.fetch(query, digest))

    async def read(self, batch_id: BatchId) -> StoredBatch:
        """Read one batch's row; raise DamagedStorageError if this version cannot read it."""
        query = f"{self.BATCHES} WHERE batch_id = {self.ID}"
        return _stored_batch(await self._rows.fetch(query, batch_id))

    async def states(self) -> dict[BatchId, BatchState | None]:
        """Return the state of every batch; None if it is damaged or of a later version."""
        rows = await self._rows.fetch(self.STATES)
        return {BatchId(batch_id): _STATES.get(state) for batch_id, state in rows}

    async def set_state(self, batch: StoredBatch, state: BatchState) -> None:
        """
        Store a batch's next state, with the numbers in `batch`; if PERMUTED, delete submissions.

        A failure in between leaves submissions that nothing reads; `sweep` or `clean_up` deletes
        them. A final state is stored before the batch's key is destroyed.

        Raises BatchStateError if the state has changed after the batch was read or, with a final
        state, the number of users, so that the decision may no longer hold.
        """
        n_users = await self._store_state(batch, state)
        self.observer(batch.batch_id, batch.state, state, n_users, batch.n_discarded)
        self.changed.set()
        if state is BatchState.PERMUTED:
            await self.clean_up(batch.batch_id)

    @abstractmethod
    async def _store_state(self, batch: StoredBatch, state: BatchState) -> int:
        """Store a state; return the number of users, or raise the errors of `check_moved`."""

    @abstractmethod
    async def clean_up(self, batch_id: BatchId) -> None:
        """Delete what arrived of a batch that is permuted or finished."""

    async def sweep(self) -> None:
        """
        Delete what a crash left: submissions of permuted or expired batches. Run at start.

        Batches in unknown states are left unchanged.
        """
        for batch_id, state in (await self.states()).items():
            if state is not None and state not in UNPERMUTED_STATES:
                await self.clean_up(batch_id)

    def close(self) -> None:
        """Finish all queued transactions, and close the store."""
        self._rows.close()


class SubmissionStore(BatchStore):
    """The shuffler's batches, and their submissions until they are permuted."""

    REFUSALS: ClassVar[str]
    """Query of the batch, outcome and number of each count."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self._commits = GroupCommit(self._commit)

    @abstractmethod
    async def open_batch(self, batch_id: BatchId, signed: SignedTask) -> StoredBatch:
        """Begin the batch of a task, or return it."""

    @abstractmethod
    def group_source(self) -> GroupSource:
        """Return a reader of the groups for worker processes."""

    async def append(self, arrival: Arrival) -> list[list[Outcome]]:
        """
        Store the new submissions of some groups durably before returning.

        A submission id is stored once per batch, and a token used once, whichever process stores
        it. Calls that arrive during a commit are committed together.

        Returns:
            The outcome of each submission, group by group, in the groups' own order.
        """
        outcomes = await self._commits.append(arrival)
        self.changed.set()
        return outcomes

    async def _commit(self, arrivals: Sequence[Arrival]) -> list[list[list[Outcome]]]:
        """Store arrivals together, each batch's as one; return the outcomes by arrival."""
        order = sorted(range(len(arrivals)), key=lambda index: arrivals[index].batch_id)
        batches = groupby((arrivals[index] for index in order), attrgetter("batch_id"))
        stored = await self._append([joined(list(calls)) for _, calls in batches])
        found = chain.from_iterable(stored)
        outcomes = {index: [next(found) for _ in arrivals[index].groups] for index in order}
        return [outcomes[index] for index in range(len(arrivals))]

    @abstractmethod
    async def _append(self, arrivals: Sequence[Arrival]) -> list[list[list[Outcome]]]:
        """Store one arrival for each batch, by ascending id, in one transaction."""

    @abstractmethod
    async def add_refusals(self, counts: Mapping[BatchId, Counter[Outcome]]) -> None:
        """Add to the counts of refused and repeated submissions."""

    async def refusals(self) -> dict[BatchId, Counter[Outcome]]:
        """Return every batch's counts, except of outcomes unknown to this version."""
        counts: dict[BatchId, Counter[Outcome]] = {}
        for batch_id, outcome, n in await self._rows.fetch(self.REFUSALS):
            if outcome in _OUTCOMES:
                counts.setdefault(BatchId(batch_id), Counter())[_OUTCOMES[outcome]] = n
        return counts
