"""An event loop in a thread, for tests that block."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in a thread of its own, until it is stopped."""

    def __init__(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, for at most a minute."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    @contextmanager
    def within(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter a context, and leave it at the end."""
        try:
            yield self.run(context.__aenter__())
        finally:
            self.run(context.__aexit__(None, None, None))

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
