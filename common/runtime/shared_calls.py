"""Concurrent calls that share work: one call for those who want the same, or one commit."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Sequence, Sized
from typing import Any, Final, Generic, TypeVar

from shuffledp.common.errors import OverloadError

K = TypeVar("K")
T = TypeVar("T")
C = TypeVar("C", bound=Sized)

_GATHER_SECONDS: Final = 0.004
"""Seconds that a commit waits for more calls if the last commit served several: a flush and the
change of threads cost as much processor time as opening several envelopes."""
_COMMIT_AT_ONCE: Final = 64
"""Minimum size of the waiting calls that are committed without a wait of _GATHER_SECONDS."""


class SharedCalls(dict[K, asyncio.Task[T]]):
    """The calls under way, by what they are for."""

    def __init__(self, most: float = math.inf, what: str = "calls") -> None:
        """Run at most `most` calls at once; `what` names them in the error."""
        super().__init__()
        self._most, self._what = most, what

    async def share(self, key: K, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """
        Return the outcome of the call for `key`, started unless it is under way.

        It continues if a caller hangs up. Raises its errors, or OverloadError beyond `most`.
        """

        def ended(task: asyncio.Task[T]) -> None:
            del self[key]
            if not task.cancelled():
                task.exception()  # marked as retrieved, even if every caller has hung up

        if key not in self:
            if len(self) >= self._most:
                raise OverloadError(f"{self._most} {self._what} are running; try again later")
            self[key] = asyncio.create_task(call())
            self[key].add_done_callback(ended)
        return await asyncio.shield(self[key])


class GroupCommit(Generic[C, T]):
    """Gathers calls, and commits them one transaction after the other."""

    def __init__(self, commit: Callable[[Sequence[C]], Awaitable[Sequence[T]]]) -> None:
        """`commit` commits calls in one transaction, and returns the result of each."""
        self._commit = commit
        self._waiting: list[tuple[C, asyncio.Future[T]]] = []
        self._committing: asyncio.Task[None] | None = None
        self._together = 0
        """Number of calls in the last commit."""

    async def append(self, call: C) -> T:
        """Commit a call with others, and return its result; raise the commit's errors."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
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
