"""Worker processes that end with the process that started them, however that ends."""

import multiprocessing
import os
import signal
import threading


def end_with_parent() -> None:
    """
    Prepare a worker process; to be run as it starts.

    Without it a worker waits for ever for work from a process that was killed. Interrupts are left
    to the parent, which stops its workers.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
