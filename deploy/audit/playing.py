"""Playing scenarios, each in a process of its own, from one seed."""

import dataclasses
import multiprocessing
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass

import numpy as np

from common.crypto.hpke_pool import end_with_parent
from deploy.audit.audited import Audited
from deploy.audit.failure import words_of
from deploy.audit.faults.catalogue import planted
from deploy.audit.finding import Finding, Outcome
from deploy.audit.scenario import Scenario

Progress = Callable[[str, int, int], None]
"""Told what is under way, how many are done, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A scenario to be played."""

    scenario: Scenario
    audited: Audited
    seed: int
    fault: str = ""
    """To be planted first, by name."""


def play(job: Job) -> Outcome:
    """Play one scenario in this process; code that fails is a finding too."""
    scenario, started = job.scenario, time.perf_counter()
    rng = np.random.default_rng([job.seed, zlib.crc32(scenario.name.encode())])
    with planted(job.fault):
        try:
            outcome = scenario.play(job.audited, rng)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is reported
            outcome = Outcome(findings=(_not_played(scenario, error),))
    return dataclasses.replace(outcome, seconds=time.perf_counter() - started)


def _not_played(scenario: Scenario, error: Exception) -> Finding:
    """Say that the running code failed, and where; what it says itself may repeat a value."""
    return Finding(
        scenario=scenario.name,
        title=scenario.title,
        heading="correctness",
        coalition="nobody",
        verdict="broken",
        sentence=f"The scenario could not be played: {words_of(error)}.",
        advice="See what this version of the program fails at.",
    )


def play_all(jobs: Sequence[Job], processes: int, progress: Progress) -> list[Outcome]:
    """
    Play scenarios, those that take longest first.

    Args:
        jobs: What to play.
        processes: How many at once; 0 for one a core; 1 for none but this process.
        progress: Told how far it is.

    Returns:
        What each came to, in the order of `jobs`.
    """
    longest_first = sorted(range(len(jobs)), key=lambda place: -jobs[place].scenario.seconds)
    processes = processes or os.cpu_count() or 1
    found = (
        _in_turn(jobs, longest_first, progress)
        if processes == 1
        else _at_once(jobs, longest_first, processes, progress)
    )
    played = dict(found)
    progress("", len(jobs), len(jobs))
    return [played[place] for place in range(len(jobs))]


def _in_turn(
    jobs: Sequence[Job], order: Sequence[int], progress: Progress
) -> Iterator[tuple[int, Outcome]]:
    for done, place in enumerate(order):
        progress(jobs[place].scenario.title, done, len(jobs))
        yield place, play(jobs[place])


def _at_once(
    jobs: Sequence[Job], order: Sequence[int], processes: int, progress: Progress
) -> Iterator[tuple[int, Outcome]]:
    """Keep so many processes busy; spawned, so that nothing of this one is in them."""
    left, going = list(order), dict[Future[Outcome], int]()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=end_with_parent) as pool:
        while left or going:
            while left and len(going) < processes:
                place = left.pop(0)
                going[pool.submit(play, jobs[place])] = place
            titles = ", ".join(jobs[place].scenario.title for place in going.values())
            progress(titles, len(jobs) - len(left) - len(going), len(jobs))
            ended, _ = wait(going, return_when=FIRST_COMPLETED)
            for future in ended:
                yield going.pop(future), future.result()
