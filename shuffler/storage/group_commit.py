"""Group commit: calls that arrive during a commit are committed together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from common.crypto.batch_key import BatchKey
from common.messages.batch import BatchId
from common.messages.submission import Outcome
from shuffler.storage.group import Group

_GATHER_SECONDS: Final = 0.004
"""Seconds that a commit waits for more calls if the last commit served several: a flush costs as
much processor time as opening several envelopes."""
_COMMIT_AT_ONCE: Final = 64
"""Minimum number of waiting submissions that are committed without a wait of _GATHER_SECONDS."""


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


class GroupCommit:
    """Gathers the calls of `append`, and commits them one transaction after the other."""

    def __init__(
        self, commit: Callable[[Sequence[Arrival]], Awaitable[list[list[list[Outcome]]]]]
    ) -> None:
        """`commit` stores arrivals in one transaction; it returns the outcomes by arrival."""
        self._commit = commit
        self._waiting: list[tuple[Arrival, asyncio.Future[list[list[Outcome]]]]] = []
        self._committing: asyncio.Task[None] | None = None
        self._together = 0
        """Number of calls in the last commit."""

    async def append(self, arrival: Arrival) -> list[list[Outcome]]:
        """Store an arrival with others; see `SubmissionStore.append`."""
        future: asyncio.Future[list[list[Outcome]]] = asyncio.get_running_loop().create_future()
        self._waiting.append((arrival, future))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_waiting())
        return await future

    async def _commit_waiting(self) -> None:
        while self._waiting:
            if (
                self._together > 1
                and sum(len(arrival) for arrival, _ in self._waiting) < _COMMIT_AT_ONCE
            ):
                await asyncio.sleep(_GATHER_SECONDS)
            together, self._waiting = self._waiting, []
            self._together = len(together)
            try:
                judged = await self._commit([arrival for arrival, _ in together])
            except Exception as error:  # noqa: BLE001  # raised in every waiting call
                for _, future in together:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), outcomes in zip(together, judged, strict=True):
                if not future.done():
                    future.set_result(outcomes)
