"""Group commit: calls that arrive during a commit are committed together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence, Sized
from typing import Final, Generic, TypeVar

C = TypeVar("C", bound=Sized)
R = TypeVar("R")

_GATHER_SECONDS: Final = 0.004
"""Seconds that a commit waits for more calls if the last commit served several: a flush and the
change of threads cost as much processor time as opening several envelopes."""
_COMMIT_AT_ONCE: Final = 64
"""Minimum size of the waiting calls that are committed without a wait of _GATHER_SECONDS."""


class GroupCommit(Generic[C, R]):
    """Gathers calls, and commits them one transaction after the other."""

    def __init__(self, commit: Callable[[Sequence[C]], Awaitable[Sequence[R]]]) -> None:
        """`commit` commits calls in one transaction, and returns the result of each."""
        self._commit = commit
        self._waiting: list[tuple[C, asyncio.Future[R]]] = []
        self._committing: asyncio.Task[None] | None = None
        self._together = 0
        """Number of calls in the last commit."""

    async def append(self, call: C) -> R:
        """Commit a call with others, and return its result; raise the commit's errors."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, future))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_waiting())
        return await future

    async def _commit_waiting(self) -> None:
        while self._waiting:
            if self._together > 1 and sum(len(call) for call, _ in self._waiting) < _COMMIT_AT_ONCE:
                await asyncio.sleep(_GATHER_SECONDS)
            together, self._waiting = self._waiting, []
            self._together = len(together)
            try:
                results = await self._commit([call for call, _ in together])
                answers = list(zip(together, results, strict=True))
            except BaseException as error:  # raised in every waiting call
                for _, future in together:
                    if not future.done():
                        future.set_exception(error)
                if isinstance(error, asyncio.CancelledError):
                    raise
                continue
            for (_, future), result in answers:
                if not future.done():
                    future.set_result(result)
