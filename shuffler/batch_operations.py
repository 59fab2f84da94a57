"""What operators ask of batches, at either shuffler of a task: their status, and their end."""

from contextlib import suppress
from dataclasses import dataclass

from shuffledp.common.errors import BatchStateError
from shuffledp.common.messages.batch import BatchState, BatchStatus
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.active_batches import Batches
from shuffledp.shuffler.batch_states import Event, close_request_event, next_state
from shuffledp.shuffler.storage.submission_store import BatchStore


@dataclass(kw_only=True)
class BatchOperations:
    """Reports, closes and drops batches."""

    batches: Batches
    store: BatchStore

    async def close(self, digest: TaskDigest) -> None:
        """
        Close a task's batch before its deadline, for an operator; no effect if already closed.

        The new state is durable before this returns.

        Raises:
            UnknownTaskError: The task was never requested; for other errors see Batches.find.
            BatchStateError: The batch has fewer users than n_min and keeps collecting, or expired.
        """
        closing_rule = (await self.batches.find(digest)).closing_rule
        while True:
            stored = await self.store.get(digest)
            event = close_request_event(stored.state, stored.n_users, closing_rule)
            if event is None:
                return
            # The number of users only grows, so the decision still holds when it is written. If
            # the batch closed automatically meanwhile, writing fails and the loop reads the state
            # again.
            with suppress(BatchStateError):
                await self.store.set_state(stored, next_state(stored.state, event))

    async def drop(self, digest: TaskDigest) -> BatchState:
        """
        Drop a task's batch, for an operator; no effect if it was dropped. Return its last state.

        That is durable before this returns; batch and key are destroyed afterwards.

        Raises:
            UnknownTaskError: The task was never requested.
            BatchStateError: The batch still collects, moves on at this moment, or has ended
                otherwise.
        """
        stored = await self.store.get(digest)
        if stored.state in {BatchState.DROPPED, BatchState.UNCONFIRMED}:
            return stored.state
        state = next_state(stored.state, Event.DROP)
        await self.store.set_state(stored, state)
        return state

    async def status(self, digest: TaskDigest) -> BatchStatus:
        """
        Return the state of a task's batch, and its number of users once it has closed.

        Raises the errors of `Batches.find`.
        """
        closing_rule = (await self.batches.find(digest)).closing_rule
        stored = await self.store.get(digest)
        closed = stored.state is not BatchState.COLLECTING
        name, reason = self.batches.untaken.get(digest, ("", ""))
        return BatchStatus(
            state=stored.state,
            n_users=stored.n_users if closed else 0,
            n_min=closing_rule.n_min,
            shuffle_seconds=stored.shuffle_seconds,
            waits_for=name * (stored.state in {BatchState.PERMUTED, BatchState.SENT}),
            n_layers=stored.n_layers,
            n_discarded=stored.n_discarded,
            reason=reason,
        )
