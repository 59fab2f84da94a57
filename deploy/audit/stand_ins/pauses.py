"""Waits that are heard while something runs."""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch


class Pauses:
    """
    Every time that this process waits for a time to pass while a block runs.

    What a coroutine waits for, its loop is told. A thread is heard that sleeps by `time.sleep`,
    by this name.
    """

    def __enter__(self) -> Self:
        self.seen: list[str] = []
        self._noting = ExitStack()
        loop = asyncio.get_running_loop()
        for owner, name, who in ((loop, "call_at", "a coroutine"), (time, "sleep", "a thread")):
            noted = self._noted(getattr(owner, name), who)
            self._noting.enter_context(patch.object(owner, name, noted))
        return self

    def _noted(self, original: Callable[..., Any], who: str) -> Callable[..., Any]:
        def other(*args: Any, **fields: Any) -> Any:  # noqa: ANN401  # as the original's
            self.seen.append(who)
            return original(*args, **fields)

        return other

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._noting.close()
