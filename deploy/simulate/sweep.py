"""
Many simulated collections: protocols × targets × repeats, spread over the cores, for every kind.

First the parameters of every protocol and target are found, then every repeat is run; both in
worker processes, which are spawned and draw from seeds of their own. Run by researchers.
"""

import dataclasses
import multiprocessing
import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, TypeVar

from analyzer.task_builder import complete
from common.accounting.guarantees import published_claim
from common.crypto.hpke_pool import end_with_parent
from common.errors import ShuffleDpError
from common.task.task import Task
from deploy.planning.design import NOT_AMPLIFIED, Design
from deploy.planning.published_design import published_design
from deploy.planning.requirements import UNUSED_KEY, Requirements
from deploy.planning.search import tight_design
from deploy.planning.value_design import value_design
from deploy.simulate.errors import Repeat
from deploy.simulate.populations import Population
from deploy.simulate.row import Accounting, SweepRow, SweepSetting

_MOST_SEEDS: Final = 2**21
"""Of hash families: answers to them are refined in seconds, not minutes."""
_BLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep:
    """The settings to compare."""

    population: Population
    protocols: tuple[str, ...]
    central_epsilons: tuple[float, ...]
    delta: float
    repeats: int
    messages_cap: float
    local_cap: float
    seed: int
    accounting: tuple[Accounting, ...] = ("tight",)
    one_by_one: bool = False
    """Make every message, however many: for comparing times."""

    def requirements(self, protocol: str, central_epsilon: float) -> Requirements:
        """Return a target as the planner takes it."""
        people = self.population
        of_items: dict[str, Any] = {
            "messages_cap": self.messages_cap,
            "trust": "shuffler-dummies",
            "most_seeds": _MOST_SEEDS,
        }
        return Requirements(
            kind=people.kind,
            n_users=people.n_users,
            n_min=people.n_users,
            domain_size=people.domain_size,
            central_epsilon=central_epsilon,
            delta=self.delta,
            local_cap=self.local_cap,
            draft_fields=people.draft_fields(protocol),
            **(of_items if people.kind == "categorical" else {}),
        )


def run(
    sweep: Sweep, progress: Callable[[str, int, int], None], pool: Executor | None = None
) -> list[SweepRow]:
    """
    Run a sweep.

    Args:
        sweep: The settings to compare.
        progress: Called with the step, how much of it is done, and of how much.
        pool: Where to run; without it, a process for each core.

    Returns:
        A row for each protocol, accounting and target, in that order; refused ones too.

    Raises:
        PlanError: A target is out of range.
    """
    if pool is None:
        with _processes() as workers:
            return run(sweep, progress, workers)
    asked = [
        (protocol, sweep.requirements(protocol, epsilon), accounting)
        for protocol, accounting, epsilon in product(
            sweep.protocols, sweep.accounting, sweep.central_epsilons
        )
    ]
    finding = [pool.submit(_find, *each) for each in asked]
    settings = _results(finding, lambda n: progress("Finding parameters", n, len(finding)))
    chunk = max(1, min(sweep.repeats, len(asked) * sweep.repeats // (8 * (os.cpu_count() or 1))))
    numbers = range(sweep.repeats)
    jobs = [
        (place, [(sweep.seed, place, number) for number in numbers[at : at + chunk]])
        for place, setting in enumerate(settings)
        if setting.task_bytes
        for at in numbers[::chunk]
    ]
    people = sweep.population
    collecting = [
        pool.submit(
            _repeats, settings[place].task_bytes, people, seeds, one_by_one=sweep.one_by_one
        )
        for place, seeds in jobs
    ]
    found = _results(collecting, lambda n: progress("Collecting", n, len(jobs)))
    repeats: dict[int, list[Repeat]] = {}
    for (place, _), each in zip(jobs, found, strict=True):
        repeats.setdefault(place, []).extend(each)
    central = {
        epsilon: people.central_errors(epsilon, sweep.delta, sweep.seed)
        for epsilon in sweep.central_epsilons
    }
    return [
        SweepRow.of(setting, repeats.get(place, []), people, central[setting.target_epsilon])
        for place, setting in enumerate(settings)
    ]


@contextmanager
def _processes() -> Generator[Executor]:
    """
    Yield a pool of a process for each core, each with one thread for linear algebra.

    Threads of two workers that wait for each other took twice as long. The library reads its
    environment when it is loaded, which in a spawned worker is before anything else can be set.
    """
    before = os.environ.get(_BLAS_THREADS)
    os.environ[_BLAS_THREADS] = "1"
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(mp_context=context, initializer=end_with_parent) as pool:
            yield pool
    finally:
        if before is None:
            del os.environ[_BLAS_THREADS]
        else:
            os.environ[_BLAS_THREADS] = before


def _results(futures: Sequence[Future[T]], report: Callable[[int], None]) -> list[T]:
    report(0)
    for done, future in enumerate(as_completed(futures), start=1):
        future.result()  # a failure ends the sweep at once
        report(done)
    return [future.result() for future in futures]


def _find(protocol: str, wanted: Requirements, accounting: Accounting) -> SweepSetting:
    """Find a protocol's parameters for a target, and make their task."""
    asked = SweepSetting(
        protocol=protocol, target_epsilon=wanted.central_epsilon, accounting=accounting
    )
    try:
        if wanted.kind != "categorical":
            design: Design = value_design(protocol, wanted)
        elif accounting == "published":
            design = published_design(protocol, wanted)
        else:
            design = tight_design(protocol, wanted)
        task = task_of(design)
    except ShuffleDpError as error:
        return dataclasses.replace(asked, refusal=str(error))
    published = ""
    if wanted.kind == "categorical" and protocol not in NOT_AMPLIFIED:
        published = published_claim(task, wanted.n_users, 0)
    return dataclasses.replace(
        asked, task_bytes=task.to_bytes(), note=design.note, published=published
    )


def task_of(design: Design) -> Task:
    """Make a task that differs from a published one only in its keys."""
    return complete(design.draft, analyzer_key=UNUSED_KEY, nonce=bytes(32))


def _repeats(
    task_bytes: bytes,
    population: Population,
    seeds: Sequence[tuple[int, int, int]],
    *,
    one_by_one: bool,
) -> list[Repeat]:
    """Run repeats; only the sweep's first one keeps its figures by value."""
    task = Task.from_bytes(task_bytes)
    found = [population.repeat(task, seed, one_by_one=one_by_one) for seed in seeds]
    return [
        each if seed[2] == 0 else dataclasses.replace(each, by_value=None)
        for seed, each in zip(seeds, found, strict=True)
    ]
