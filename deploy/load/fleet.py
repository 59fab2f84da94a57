"""Processes that play users: started once, given shares of the users, asked what they saw."""

import asyncio
import multiprocessing
import random
import resource
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError
from common.runtime.access import CallKind
from deploy.load.connection import Destination
from deploy.load.plan import LoadPlan
from deploy.load.prepared_file import Prepared
from deploy.load.sender import Sender
from deploy.load.tally import Tally

_REPORT_SECONDS: Final = 0.25
_LEAD_SECONDS: Final = 0.2
"""From the word to go to the first arrival, so that every process is ready."""
_MOST_USERS: Final = 4096
"""Users under way at once in an open loop, over all processes; more wait, and their waits count."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Share:
    """What one process is to send."""

    units: NDArray[np.int64]
    """Users that are sent together, first and end of each, shape (n, 2)."""
    times: NDArray[np.float64] | None
    """Seconds from the start at which each is to begin; None in a closed loop."""
    at_once: int
    """Units under way, at most."""
    start: float = 0.0
    """On the monotonic clock, which all processes share."""


class Fleet:
    """The processes of one run."""

    def __init__(self, to: Destination, prepared: Prepared, plan: LoadPlan) -> None:
        self._arguments = (to, prepared, plan)
        self._processes = plan.processes
        self._pipes: list[Pipe] = []
        self._started: list[SpawnProcess] = []

    @property
    def pids(self) -> list[int]:
        """Numbers of its processes."""
        return [process.pid for process in self._started if process.pid is not None]

    def __enter__(self) -> Self:
        """Start the processes."""
        spawn = multiprocessing.get_context("spawn")
        for number in range(self._processes):
            ours, theirs = spawn.Pipe()
            arguments = (theirs, number, *self._arguments)
            process = spawn.Process(target=_work, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._started.append(process)
            self._pipes.append(ours)
        for pipe in self._pipes:
            _received(pipe)  # ready
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End them, whatever they do: whoever waits in `run` is told that they have ended."""
        for process in self._started:
            process.terminate()
            process.join()
        for pipe in self._pipes:
            pipe.close()

    def run(
        self,
        units: NDArray[np.int64],
        times: NDArray[np.float64] | None,
        at_once: int,
        progress: Callable[[Tally], None] = lambda _: None,
    ) -> Tally:
        """
        Let users come, and wait until all are through. Blocks: call it beside the event loop.

        Args:
            units: First and end of users who are sent together, shape (n, 2).
            times: When each unit is to begin, in seconds, ascending; None for a closed loop.
            at_once: Units under way in a closed loop, over all processes.
            progress: Told from time to time what all users saw so far, without their waits.

        Raises:
            SettingsError: A process ended.
        """
        start = time.monotonic() + _LEAD_SECONDS
        shares = dealt(units, times, at_once, self._processes)
        for pipe, share in zip(self._pipes, shares, strict=True):
            pipe.send(replace(share, start=start))
        seen = {id(pipe): Tally() for pipe in self._pipes}
        busy = list(self._pipes)
        while busy:
            for ready in wait(busy):
                pipe = next(pipe for pipe in busy if pipe is ready)
                finished, seen[id(pipe)] = _received(pipe)
                if finished:
                    busy.remove(pipe)
            progress(_sum(list(seen.values())))
        return _sum(list(seen.values()))


def dealt(
    units: NDArray[np.int64], times: NDArray[np.float64] | None, at_once: int, processes: int
) -> list[Share]:
    """Deal units out in turn, so that every process has some of every moment."""
    return [
        Share(
            units=units[number::processes],
            times=None if times is None else times[number::processes],
            at_once=max(1, (at_once + processes - 1 - number) // processes),
        )
        for number in range(processes)
    ]


def _sum(tallies: Sequence[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.add(tally)
    return total


def _received(pipe: Pipe) -> tuple[bool, Tally]:
    try:
        finished, tally = pipe.recv()
    except (EOFError, ConnectionError) as error:
        raise SettingsError("a process that plays users has ended: the run is lost") from error
    return bool(finished), tally


# --- in a process of its own -------------------------------------------------------------------


def _work(pipe: Pipe, number: int, to: Destination, prepared: Prepared, plan: LoadPlan) -> None:
    """Play whatever shares come through the pipe, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when it is over
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with suppress(EOFError, ConnectionError):
        asyncio.run(_serve(pipe, number, to, prepared, plan))


async def _serve(
    pipe: Pipe, number: int, to: Destination, prepared: Prepared, plan: LoadPlan
) -> None:
    seed = None if plan.seed is None else plan.seed + number
    pipe.send((True, Tally()))
    while True:
        share: Share = await asyncio.to_thread(pipe.recv)
        sender = Sender(to, prepared, plan, random.Random(seed))  # noqa: S311  # pauses
        reporting = asyncio.create_task(_report(pipe, sender))
        try:
            await play(share, sender, most=_most_at_once(plan))
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
        pipe.send((True, await sender.close()))


async def _report(pipe: Pipe, sender: Sender) -> None:
    while True:
        await asyncio.sleep(_REPORT_SECONDS)
        pipe.send((False, sender.tally))


def _most_at_once(plan: LoadPlan) -> int:
    """Bound units under way in an open loop: in bulk by the places that a shuffler has."""
    most = CallKind.BULK.value.places if plan.mode == "bulk" else _MOST_USERS
    return max(1, most // plan.processes)


async def play(share: Share, sender: Sender, *, most: int) -> None:
    """Let the users of a share come: by their schedule, or so many at once."""
    if share.times is None:
        await _closed_loop(share, sender)
    else:
        await _open_loop(share, share.times, sender, most)


async def _closed_loop(share: Share, sender: Sender) -> None:
    await asyncio.sleep(max(0.0, share.start - time.monotonic()))
    units = iter(share.units.tolist())

    async def one_after_the_other() -> None:
        for first, end in units:
            await sender.send(first, end, time.monotonic())

    async with asyncio.TaskGroup() as group:
        for _ in range(min(share.at_once, len(share.units))):
            group.create_task(one_after_the_other())


async def _open_loop(share: Share, times: NDArray[np.float64], sender: Sender, most: int) -> None:
    room = asyncio.Semaphore(most)

    async def send(first: int, end: int, intended: float) -> None:
        try:
            await sender.send(first, end, intended)
        finally:
            room.release()

    async with asyncio.TaskGroup() as group:
        for (first, end), after in zip(share.units.tolist(), times.tolist(), strict=True):
            intended = share.start + after
            if (early := intended - time.monotonic()) > 0:
                await asyncio.sleep(early)
            await room.acquire()
            group.create_task(send(first, end, intended))
