"""Playing the scenarios of an audit, each in a process of its own, from one seed."""

import dataclasses
import hashlib
import multiprocessing
import os
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from common.accounting.coalitions import guarantees
from common.errors import SettingsError
from common.task_digest import TaskDigest
from common.version import VERSION
from deploy.audit.audited import FULL, Audited
from deploy.audit.catalogue import SCENARIOS
from deploy.audit.faults.catalogue import fault_named
from deploy.audit.finding import Finding, Outcome
from deploy.audit.report import AuditReport
from deploy.audit.scenario import Scenario

Progress = Callable[[str, int, int], None]
"""Told the scenarios under way, how many are done, and how many there are."""


def scenarios_named(names: Sequence[str]) -> tuple[Scenario, ...]:
    """
    Give scenarios by name, in the order of a report; all of them for no name.

    Raises:
        SettingsError: There is none of such a name.
    """
    known = {scenario.name: scenario for scenario in SCENARIOS}
    for name in names:
        if name not in known:
            raise SettingsError(f"there is no scenario {name!r}; there are {', '.join(known)}")
    return tuple(scenario for scenario in SCENARIOS if not names or scenario.name in names)


def audit(
    audited: Audited,
    *,
    seed: int,
    scenarios: Sequence[Scenario] = SCENARIOS,
    processes: int = 0,
    fault: str = "",
    command: str = "",
    progress: Progress = lambda *_: None,
) -> AuditReport:
    """
    Play scenarios and gather what they came to.

    Args:
        audited: The task, how many users, and how much is drawn.
        seed: Each scenario draws from this and its name, so that which others run changes nothing.
        scenarios: Which.
        processes: How many at once; 0 for one a core; 1 for none but this process.
        fault: A fault to plant in every process, by name.
        command: What to type to run it again.
        progress: Told how far it is.

    Returns:
        What was found, in the order of `scenarios`.

    Raises:
        SettingsError: There is no fault of this name.
    """
    started = time.perf_counter()
    jobs = {
        scenario.name: (scenario, audited, seed, fault)
        for scenario in sorted(scenarios, key=lambda scenario: -scenario.seconds)
    }
    processes = processes or os.cpu_count() or 1
    played = dict(
        (_in_turn if processes == 1 else _at_once)(list(jobs.values()), processes, progress)
    )
    task = audited.task
    return AuditReport(
        task=task,
        task_digest=TaskDigest(hashlib.sha256(audited.task_bytes).digest()),
        n_users=audited.n_users,
        mode="full" if audited.effort == FULL else "quick",
        seed=seed,
        version=VERSION,
        seconds=time.perf_counter() - started,
        outcomes=tuple(played[scenario.name] for scenario in scenarios),
        guarantees=guarantees(task, audited.n_users, 0),
        command=command,
    )


_Job = tuple[Scenario, Audited, int, str]


def _play(scenario: Scenario, audited: Audited, seed: int, fault: str) -> Outcome:
    """Play one scenario, with a fault planted or without. Run in a process of its own."""
    rng = np.random.default_rng([seed, zlib.crc32(scenario.name.encode())])
    started = time.perf_counter()
    with fault_named(fault).plant() if fault else nullcontext():
        try:
            outcome = scenario.play(audited, rng)
        except Exception as error:  # noqa: BLE001  # code that fails is a finding too
            outcome = Outcome(findings=(_not_played(scenario, error),))
    return dataclasses.replace(outcome, seconds=time.perf_counter() - started)


def _not_played(scenario: Scenario, error: Exception) -> Finding:
    """Say that the running code failed, and where: what it says may repeat a value."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}, line {last.lineno}"
    return Finding(
        scenario=scenario.name,
        title=scenario.title,
        heading="correctness",
        coalition="nobody",
        verdict="broken",
        sentence=f"The scenario could not be played: {type(error).__name__} in {where}.",
        advice="See what this version of the program fails at.",
    )


def _in_turn(
    jobs: Sequence[_Job], processes: int, progress: Progress
) -> Iterator[tuple[str, Outcome]]:
    del processes  # this one
    for done, job in enumerate(jobs):
        progress(job[0].title, done, len(jobs))
        yield job[0].name, _play(*job)
    progress("", len(jobs), len(jobs))


def _at_once(
    jobs: Sequence[_Job], processes: int, progress: Progress
) -> Iterator[tuple[str, Outcome]]:
    """Keep so many processes busy; spawned, so that nothing of this one is in them."""
    left, going = list(jobs), dict[Future[Outcome], Scenario]()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        while left or going:
            while left and len(going) < processes:
                job = left.pop(0)
                going[pool.submit(_play, *job)] = job[0]
            titles = ", ".join(scenario.title for scenario in going.values())
            progress(titles, len(jobs) - len(left) - len(going), len(jobs))
            ended, _ = wait(going, return_when=FIRST_COMPLETED)
            for future in ended:
                yield going.pop(future).name, future.result()
    progress("", len(jobs), len(jobs))
