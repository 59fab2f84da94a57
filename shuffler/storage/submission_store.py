"""The interface of the shuffler's store of batches and submissions, and its values."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from common.crypto.batch_key import BatchKey
from common.crypto.signing import SignedTask
from common.messages.batch import BatchId, BatchState
from common.messages.submission import Outcome
from common.task_digest import TaskDigest
from shuffler.storage.group import Group

OPEN_STATES: Final = frozenset({BatchState.COLLECTING, BatchState.CLOSED})
"""States in which a batch's submissions are on the disk."""


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


Observer = Callable[[BatchId, BatchState, BatchState, int], None]
"""Called after every stored change of a batch's state with the batch, its old state, its new
state, and its number of users at that moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The groups of one call, stored together."""

    batch_id: BatchId
    key: BatchKey
    groups: Sequence[Group]
    deadline: int
    """The task's deadline, in seconds since 1970 UTC by the store's clock. From then on submissions
    are only compared with stored ones."""
    token_tags: Sequence[Sequence[bytes]] = ()
    """For each group the keyed hash of each submission's token, which is accepted once per batch;
    empty if no tokens are required."""

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)


class GroupSource(Protocol):
    """The stored groups of a batch, for worker processes. Picklable."""

    def read(self, batch_id: BatchId, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Yield a batch's groups by number, from `first` to `last`: number and sealed reports."""


class SubmissionStore(ABC):
    """
    The shuffler's batches, and their submissions until they are permuted.

    Every method may raise StorageError; nothing that it should have written is then promised, and
    it is safe to retry.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    @abstractmethod
    async def open_batch(self, batch_id: BatchId, signed: SignedTask) -> StoredBatch:
        """Begin the batch of a task, or return the existing one."""

    @abstractmethod
    async def get(self, digest: TaskDigest) -> StoredBatch:
        """
        Look up the batch of a task.

        Raises:
            UnknownTaskError: The task has no batch.
            DamagedStorageError: The batch's row is damaged, or of a later version.
        """

    @abstractmethod
    async def read(self, batch_id: BatchId) -> StoredBatch:
        """Read one batch's row; raise DamagedStorageError if this version cannot read it."""

    @abstractmethod
    async def states(self) -> dict[BatchId, BatchState | None]:
        """Return the state of every batch; None if it is damaged or of a later version."""

    @abstractmethod
    def group_source(self) -> GroupSource:
        """Return a reader of the groups for worker processes."""

    @abstractmethod
    async def append(self, arrival: Arrival) -> list[list[Outcome]]:
        """
        Store the new submissions of some groups durably before returning.

        A submission id is stored once per batch, and a token used once, whichever process stores
        it. Calls that arrive during a commit are committed together.

        Returns:
            The outcome of each submission, group by group, in the groups' own order.
        """

    @abstractmethod
    async def add_refusals(self, counts: Mapping[BatchId, Counter[Outcome]]) -> None:
        """Add to the counts of refused and repeated submissions."""

    @abstractmethod
    async def refusals(self) -> dict[BatchId, Counter[Outcome]]:
        """Return every batch's counts of refused and repeated submissions."""

    async def set_state(self, batch: StoredBatch, state: BatchState) -> None:
        """Store a batch's next state, or raise BatchStateError if the state has changed."""
        await self._move(batch, state)

    async def record_permuted(self, batch: StoredBatch, state: BatchState) -> None:
        """
        Record that the permuted batch is saved, with the numbers in `batch`, and then delete its
        submissions.

        A failure in between leaves submissions that nothing reads; `sweep` or `clean_up` deletes
        them.
        """
        await self._move(batch, state)
        await self.clean_up(batch.batch_id)

    async def set_last_state(self, batch: StoredBatch, state: BatchState) -> None:
        """
        Store a batch's final state, before its key is destroyed.

        Raises:
            BatchStateError: The state or number of users changed after the batch was read, so the
                decision may no longer hold.
        """
        await self._move(batch, state, same_users=True)

    async def _move(
        self, batch: StoredBatch, state: BatchState, *, same_users: bool = False
    ) -> None:
        n_users = await self._store_state(batch, state, same_users=same_users)
        self._observer(batch.batch_id, batch.state, state, n_users)

    @abstractmethod
    async def _store_state(self, batch: StoredBatch, state: BatchState, *, same_users: bool) -> int:
        """
        Store a state; return the number of users, which may exceed `batch.n_users` by now.

        Raises BatchStateError if the state has changed or, with `same_users`, that number.
        """

    @abstractmethod
    async def clean_up(self, batch_id: BatchId) -> None:
        """Delete a finished batch's submissions."""

    async def sweep(self) -> None:
        """
        Delete what a crash left: submissions of permuted or expired batches. Run at start.

        Batches in unknown states are left unchanged.
        """
        for batch_id, state in (await self.states()).items():
            if state is not None and state not in OPEN_STATES:
                await self.clean_up(batch_id)

    @abstractmethod
    def close(self) -> None:
        """Finish all queued transactions, and close the store."""
