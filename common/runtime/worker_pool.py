"""Worker processes of a command, which an interruption does not reach."""

import multiprocessing
import os
import signal
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from common.crypto.hpke_pool import end_with_parent


@contextmanager
def worker_pool(processes: int | None = None) -> Generator[ProcessPoolExecutor]:
    """
    Yield a pool of spawned processes, by default one per core, which end with this process.

    They start at once, with SIGINT blocked: a terminal sends it to them too, and one that is still
    loading would print a traceback.
    """
    workers = (os.cpu_count() or 1) if processes is None else processes
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(1, workers), spawn, initializer=end_with_parent) as pool:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(workers):
                pool.submit(int)  # starts a worker
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield pool
