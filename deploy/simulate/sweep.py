"""
Many simulated collections: protocols × targets × repeats, spread over the cores.

First the parameters of every protocol and target are found, then every repeat is run; both in
worker processes, which are spawned and draw from seeds of their own. Run by researchers.
"""

import dataclasses
import multiprocessing
import os
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np

from analyzer.task_builder import complete
from common.accounting.guarantees import published_claim
from common.crypto.hpke_pool import end_with_parent
from common.errors import ShuffleDpError
from common.mechanisms.base import Counts, Mechanism
from common.mechanisms.registry import mechanism_of
from common.protocols import protocol_named
from common.task.task import Task
from deploy.datasets.catalogue import Dataset
from deploy.planning.parameters import LOCAL, Parameters
from deploy.planning.published_parameters import published_parameters
from deploy.planning.requirements import Wishes
from deploy.planning.tight_parameters import tight_parameters
from deploy.simulate.baselines.central_error import Reference
from deploy.simulate.collection import count, made_one_by_one, release
from deploy.simulate.errors import Errors
from deploy.simulate.row import Accounting, Repeat, Row, Setting

_KEY: Final = bytes(31) + b"\x09"
"""Stands where a task has public keys; nothing is sealed."""
_DEADLINE: Final = 4_000_000_000
_MOST_SEEDS: Final = 2**21
"""Of hash families: answers to them are refined in seconds, not minutes."""
_BLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep:
    """What is asked for."""

    dataset: Dataset
    n_users: int
    protocols: tuple[str, ...]
    central_epsilons: tuple[float, ...]
    delta: float
    accounting: tuple[Accounting, ...]
    repeats: int
    messages_cap: float
    local_cap: float
    seed: int
    one_by_one: bool = False
    """Make every message, however many: for comparing times."""

    def labels(self, protocol: str) -> tuple[str, ...]:
        """Give the items' names to a protocol that hashes them; numbers where they have none."""
        if protocol_named(protocol).domain != "labelled":
            return ()
        size = len(self.dataset.counts)
        return self.dataset.labels or tuple(f"item {item}" for item in range(size))

    def wishes(self, central_epsilon: float) -> Wishes:
        """Give a target as the planner takes it."""
        return Wishes(
            n_users=self.n_users,
            n_min=self.n_users,
            domain_size=len(self.dataset.counts),
            central_epsilon=central_epsilon,
            delta=self.delta,
            local_cap=self.local_cap,
            messages_cap=self.messages_cap,
            trust="shuffler-dummies",
            most_seeds=_MOST_SEEDS,
        )


def run(sweep: Sweep, progress: Callable[[str, int, int], None]) -> list[Row]:
    """
    Run a sweep.

    Args:
        sweep: What is asked for.
        progress: Told what is being done, how much of it is done, and of how much.

    Returns:
        A row for each protocol, target and accounting, in that order; refused ones too.
    """
    context = multiprocessing.get_context("spawn")
    cores = os.cpu_count() or 1
    asked = [
        (protocol, epsilon, accounting)
        for protocol in sweep.protocols
        for accounting in sweep.accounting
        for epsilon in sweep.central_epsilons
    ]
    with (
        _one_thread_each(),
        ProcessPoolExecutor(cores, mp_context=context, initializer=end_with_parent) as pool,
    ):
        finding = [
            pool.submit(find, protocol, sweep.wishes(epsilon), accounting, sweep.labels(protocol))
            for protocol, epsilon, accounting in asked
        ]
        settings = _collected(finding, lambda n: progress("Finding parameters", n, len(finding)))
        together = max(1, min(sweep.repeats, len(asked) * sweep.repeats // (8 * cores)))
        running: list[list[Future[list[Repeat]]]] = []
        for place, setting in enumerate(settings):
            starts = range(0, sweep.repeats, together) if setting.task_bytes else ()
            running.append(
                [
                    pool.submit(
                        _repeats,
                        setting.task_bytes,
                        sweep.dataset,
                        sweep.n_users,
                        [
                            (sweep.seed, place, number)
                            for number in range(start, min(start + together, sweep.repeats))
                        ],
                        one_by_one=sweep.one_by_one,
                    )
                    for start in starts
                ]
            )
        chunks = [future for futures in running for future in futures]
        _collected(chunks, lambda n: progress("Collecting", n, len(chunks)))
    central = {epsilon: reference(sweep, epsilon) for epsilon in sweep.central_epsilons}
    return [
        Row.of(
            setting,
            [each for future in futures for each in future.result()],
            n_users=sweep.n_users,
            domain_size=len(sweep.dataset.counts),
            dataset=sweep.dataset.name,
            reference=central[setting.target_epsilon],
        )
        for setting, futures in zip(settings, running, strict=True)
    ]


@contextmanager
def _one_thread_each() -> Generator[None]:
    """
    Let workers that are started inside use one thread for linear algebra: the cores are shared out.

    Threads of two workers that wait for each other took twice as long. The library reads its
    environment when it is loaded, which in a spawned worker is before anything else can be told.
    """
    before = os.environ.get(_BLAS_THREADS)
    os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_BLAS_THREADS]
        else:
            os.environ[_BLAS_THREADS] = before


def _collected(futures: Sequence[Future[T]], tell: Callable[[int], None]) -> list[T]:
    tell(0)
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        tell(len(futures) - len(waiting))
    return [future.result() for future in futures]


def find(
    protocol: str, wishes: Wishes, accounting: Accounting, labels: tuple[str, ...] = ()
) -> Setting:
    """Find a protocol's parameters for a target, and the task that they make."""
    asked = Setting(protocol=protocol, target_epsilon=wishes.central_epsilon, accounting=accounting)
    chosen = published_parameters if accounting == "published" else tight_parameters
    try:
        parameters = chosen(protocol, wishes)
        task = task_of(parameters, wishes, labels)
    except ShuffleDpError as error:
        return dataclasses.replace(asked, refusal=str(error))
    published = "" if protocol in LOCAL else published_claim(task, wishes.n_users, 0)
    return dataclasses.replace(
        asked, task_bytes=task.to_bytes(), note=parameters.note, published=published
    )


def task_of(parameters: Parameters, wishes: Wishes, labels: tuple[str, ...] = ()) -> Task:
    """Make a task that differs from a published one in nothing but its keys."""
    draft = parameters.draft(wishes, shuffler_key=_KEY, deadline=_DEADLINE, labels=labels)
    return complete(draft, analyzer_key=_KEY, nonce=bytes(32))


@lru_cache(maxsize=1)
def _mechanism(task_bytes: bytes) -> tuple[Task, Mechanism]:
    task = Task.from_bytes(task_bytes)
    return task, mechanism_of(task)


def _repeats(
    task_bytes: bytes,
    dataset: Dataset,
    n_users: int,
    seeds: list[tuple[int, int, int]],
    *,
    one_by_one: bool,
) -> list[Repeat]:
    task, mechanism = _mechanism(task_bytes)
    found = []
    for seed in seeds:
        # The same people for every protocol, so that what is compared differs in nothing else.
        people = dataset.sample_counts(n_users, np.random.default_rng((seed[0], seed[2])))
        rng = np.random.default_rng(seed)
        found.append(repeat(task, mechanism, people, rng, one_by_one=one_by_one))
    return found


def repeat(
    task: Task,
    mechanism: Mechanism,
    users: Counts,
    rng: np.random.Generator,
    *,
    one_by_one: bool = False,
) -> Repeat:
    """Collect once, each message made if asked for or if few, and compare with the truth."""
    n_users = int(users.sum())
    started = time.perf_counter()
    one_by_one = one_by_one or made_one_by_one(task, n_users)
    counted = count(task, mechanism, users, rng, one_by_one=one_by_one)
    histogram, mixture = release(task, mechanism, counted, n_users)
    seconds = time.perf_counter() - started
    truth = users / n_users
    return Repeat(
        errors=Errors.of(histogram, truth),
        mse_theory=float(mechanism.variance(truth, mixture).mean()),
        seconds=seconds,
        one_by_one=one_by_one,
    )


def reference(sweep: Sweep, central_epsilon: float) -> Reference:
    """Work out what central mechanisms err by at a target, of the first repeat's people."""
    first = np.random.default_rng((sweep.seed, 0))
    people = sweep.dataset.sample_counts(sweep.n_users, first)
    return Reference.of(people, central_epsilon, sweep.delta)


def central_lines(sweep: Sweep, central_epsilon: float) -> dict[str, float]:
    """
    Give the error of central mechanisms at a target: exact variances, nothing simulated.

    Laplace noise of scale 2/ε on every count (replacing one person changes two counts by one), and
    Gaussian noise by the analytic calibration [BW18].
    """
    return reference(sweep, central_epsilon).lines()
