"""End a command on Ctrl-C: quietly, soon, and with all its processes."""

import multiprocessing
import os
import signal
import threading
from typing import Final

INTERRUPTED: Final = 130
"""Exit status after an interruption, as shells use it."""
_GRACE_SECONDS: Final = 1.0
"""Time to stop services and to remove temporary folders."""


def end_on_interrupt() -> None:
    """Let SIGINT end this process and its workers, a second later by force."""
    signal.signal(signal.SIGINT, _interrupt)


def _interrupt(*_: object) -> None:
    signal.signal(signal.SIGINT, _end)
    for worker in multiprocessing.active_children():
        worker.kill()  # it would finish its work first
    timer = threading.Timer(_GRACE_SECONDS, _end)
    timer.daemon = True
    timer.start()
    raise KeyboardInterrupt


def _end(*_: object) -> None:
    import psutil  # noqa: PLC0415  # help needs none

    for child in psutil.Process().children(recursive=True):
        child.kill()
    os._exit(INTERRUPTED)
