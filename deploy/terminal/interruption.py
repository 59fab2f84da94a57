"""End a command on Ctrl-C or another signal: quietly, soon, and with all its processes."""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, Final, TypeVar

T = TypeVar("T")
STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED: Final = 130
"""Exit status after an interruption, as shells use it."""
_GRACE_SECONDS: Final = {signal.SIGINT: 1.0, signal.SIGTERM: 5.0, signal.SIGHUP: 5.0}
"""Time to stop services and to remove temporary folders; nobody waits for it but at Ctrl-C."""


@contextmanager
def ended_by_interrupt() -> Generator[None]:
    """
    Let STOPS end this process and its children, seconds later by force; afterwards, at once.

    By default SIGTERM and SIGHUP would leave services running, and workers' semaphores.
    """
    _handle(_interrupt)
    try:
        yield
    finally:
        _handle(_end)


def _handle(handler: Callable[..., None]) -> None:
    for number in STOPS:
        if not _is_ignored(number):
            signal.signal(number, handler)


def _is_ignored(number: signal.Signals) -> bool:
    """Return whether a signal stays ignored, as by nohup; Ctrl-C always ends a command."""
    return number != signal.SIGINT and signal.getsignal(number) is signal.SIG_IGN


async def until_stopped(
    work: Coroutine[Any, Any, None], signals: Sequence[signal.Signals] = STOPS
) -> None:
    """Await `work`, or cancel it at the first of some signals, and let it clean up in peace."""
    task = asyncio.ensure_future(work)

    def stop() -> None:
        if not task.cancelling():
            task.cancel()

    for number in signals:
        if not _is_ignored(number):
            asyncio.get_running_loop().add_signal_handler(number, stop)
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


def in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a thread, since a notebook's own runs a loop; Ctrl-C cancels it."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    with closing(loop), ThreadPoolExecutor(1) as pool:
        done = pool.submit(loop.run_until_complete, task)
        try:
            return done.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(task.cancel)
            raise


def _interrupt(number: signal.Signals, _: object) -> None:
    _handle(_end)
    for worker in multiprocessing.active_children():
        worker.kill()  # it would finish its work first
    timer = threading.Timer(_GRACE_SECONDS[number], _end)
    timer.daemon = True
    timer.start()
    raise KeyboardInterrupt


def _end(*_: object) -> None:
    import psutil  # noqa: PLC0415  # help needs none

    for child in psutil.Process().children(recursive=True):
        child.kill()
    os._exit(INTERRUPTED)
