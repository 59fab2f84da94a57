"""Threads that sign. libcrypto, or GMP without it, releases the interpreter's lock in them."""

import os
from concurrent.futures import ThreadPoolExecutor

import gmpy2


def signing_threads(count: int) -> ThreadPoolExecutor:
    """Start `count` threads, or one per core for 0, on first use."""
    return ThreadPoolExecutor(
        count or os.cpu_count() or 1, thread_name_prefix="signing", initializer=_release_lock
    )


def _release_lock() -> None:
    gmpy2.get_context().allow_release_gil = True  # of this thread only
