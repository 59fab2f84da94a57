"""
Simulate many collections: protocols × targets × repeats, on all cores.

Worker processes first find the parameters of every protocol and target, then run every repeat with
a seed of its own.
"""

import dataclasses
import multiprocessing
import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
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
from deploy.simulate.populations import Population, Seed
from deploy.simulate.row import Accounting, SweepRow

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
    people = sweep.population
    asked = list(product(sweep.protocols, sweep.accounting, sweep.central_epsilons))
    wanted = [sweep.requirements(protocol, epsilon) for protocol, _, epsilon in asked]
    finding = pool.map(_find, asked, wanted)
    found = _followed(finding, lambda n: progress("Finding parameters", n, len(asked)))
    jobs = [
        (fields["task"], (sweep.seed, place, number))
        for place, fields in enumerate(found)
        if "task" in fields
        for number in range(sweep.repeats)
    ]
    repeat = partial(_repeat, people, one_by_one=sweep.one_by_one)
    chunk = max(1, len(jobs) // (8 * (os.cpu_count() or 1)))
    collecting = pool.map(repeat, jobs, chunksize=chunk)
    repeats = iter(_followed(collecting, lambda n: progress("Collecting", n, len(jobs))))
    central = {
        epsilon: people.central_errors(epsilon, sweep.delta, sweep.seed)
        for epsilon in sweep.central_epsilons
    }
    return [
        SweepRow(
            protocol=protocol,
            accounting=accounting,
            target_epsilon=epsilon,
            population=people,
            reference=central[epsilon],
            repeats=list(islice(repeats, sweep.repeats)) if "task" in fields else [],
            **fields,
        )
        for (protocol, accounting, epsilon), fields in zip(asked, found, strict=True)
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


def _followed(results: Iterator[T], report: Callable[[int], None]) -> list[T]:
    found = list[T]()
    report(0)
    for each in results:
        found.append(each)
        report(len(found))
    return found


def _find(asked: tuple[str, Accounting, float], wanted: Requirements) -> dict[str, Any]:
    """Find a protocol's parameters for a target; return a row's task and notes, or a refusal."""
    protocol, accounting, _ = asked
    items = wanted.kind == "categorical"
    try:
        if not items:
            design: Design = value_design(protocol, wanted)
        elif accounting == "published":
            design = published_design(protocol, wanted)
        else:
            design = tight_design(protocol, wanted)
        task = task_of(design)
    except ShuffleDpError as error:
        return {"refusal": str(error)}
    amplified = items and protocol not in NOT_AMPLIFIED
    published = published_claim(task, wanted.n_users, 0) if amplified else ""
    return {"task": task, "note": design.note, "published": published}


def task_of(design: Design) -> Task:
    """Make a task that differs from a published one only in its keys."""
    return complete(design.draft, analyzer_key=UNUSED_KEY, nonce=bytes(32))


def _repeat(population: Population, job: tuple[Task, Seed], *, one_by_one: bool) -> Repeat:
    """Run one repeat; only a setting's first one keeps its figures by value."""
    task, seed = job
    found = population.repeat(task, seed, one_by_one=one_by_one)
    return found if seed[2] == 0 else dataclasses.replace(found, by_value=None)
