"""One call for all concurrent callers who want the same."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from common.errors import OverloadError

K = TypeVar("K")
T = TypeVar("T")


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
