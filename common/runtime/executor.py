"""
Run the parts of a batch: in this machine's worker processes, or on an engine.

A job holds all that a batch's parts are computed from; its methods are the stages, each a pure
function of a part's number. Parts exchange data through blocks and return only small public
results, so a part can be computed again anywhere, any number of times.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures.process import BrokenProcessPool
from typing import Final, Protocol, TypeVar

from common.crypto.hpke_pool import HpkePool

J = TypeVar("J", bound="Job")
T = TypeVar("T")

_ATTEMPTS: Final = 5
"""Attempts at one part; a part that ends its worker each time fails."""
_PARTS_AHEAD: Final = 2
"""Parts submitted per worker, so that none waits for the next."""


class Job(Protocol):
    """What a batch's parts are computed from. Picklable; hides its secrets in repr."""

    @property
    def folder(self) -> str:
        """The batch's folder of blocks."""


class Executor(Protocol):
    """Runs parts."""

    async def run(self, stage: Callable[[J, int], T], job: J, parts: Iterable[int]) -> list[T]:
        """
        Run a stage, a method of the job's class, for each part; return the results in order.

        Raises the first error of a part; a part whose worker dies is computed again.
        """


class LocalExecutor:
    """Runs parts in worker processes of this machine."""

    def __init__(self, pool: HpkePool) -> None:
        self._pool = pool
        self._slots = asyncio.Semaphore(_PARTS_AHEAD * pool.processes)

    async def run(self, stage: Callable[[J, int], T], job: J, parts: Iterable[int]) -> list[T]:
        """Run a stage; see `Executor.run`."""
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(self._run_part(stage, job, part)) for part in parts]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in running]

    async def _run_part(self, stage: Callable[[J, int], T], job: J, part: int) -> T:
        for attempt in range(1, _ATTEMPTS + 1):
            async with self._slots:
                try:
                    return await asyncio.wrap_future(self._pool.submit(stage, job, part))
                except BrokenProcessPool:
                    if attempt == _ATTEMPTS:
                        raise
        raise AssertionError("unreachable")
