"""Simulated users' submissions, sealed ahead on all cores by the code that devices run."""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.crypto.randomness import secure_generator
from common.crypto.signing import SignedTask
from common.errors import TaskError
from common.task.task import SUBMISSION_ID_BYTES, Task
from common.task_digest import TaskDigest
from deploy.datasets.choice import dataset
from deploy.load.behaviour import Behaviour, assign, is_counted
from deploy.load.plan import Crowd
from deploy.load.prepared_file import PreparedWriter
from deploy.tasks.sample_value import sample_value
from user_agent.contribution import Contributor

_TOGETHER: Final = 250
"""Users sealed by one worker at a time."""
_AHEAD: Final = 4
"""Of such groups, how many a worker is given before the first is written: bounds the memory."""

Users = list[tuple[int, int]]
"""Behaviour and value of each."""

_RANDOM: Final = frozenset({Behaviour.MALFORMED, Behaviour.OVERSIZED})
"""Whose envelope is random bytes: opening it costs the shuffler as much as any other's."""


class _SameId(np.random.Generator):
    """
    A generator that gives one submission id, and is otherwise as random as what it stands on.

    `Contributor` draws ids as bytes, and secrets, of another length.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng.bit_generator)
        self._id = rng.bytes(SUBMISSION_ID_BYTES)

    def bytes(self, length: int) -> bytes:
        """Give the id; of another length, what the generator gives."""
        return self._id if length == SUBMISSION_ID_BYTES else super().bytes(length)


def draw_values(
    name: str, kinds: NDArray[np.uint8], domain_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """
    Draw people from a data set, a different one for each user whose value must be counted.

    Args:
        name: What `deploy.datasets.choice` knows.
        kinds: Users' behaviours, shape (n,).
        domain_size: The task's.
        rng: Chooses the people.

    Returns:
        Items, shape (n,); 0 for users whose value is not counted.

    Raises:
        TaskError: There is no such data set, or too few people, or other items than the task's.
    """
    counted = is_counted(kinds)
    people = int(counted.sum())
    chosen = dataset(name, people)
    if chosen.domain_size != domain_size:
        raise TaskError(
            f"{chosen.name} has {chosen.domain_size} items and the task has {domain_size}: name a "
            f"data set that fits, such as zipf:{domain_size}"
        )
    values = np.zeros(len(kinds), dtype=np.int64)
    values[counted] = chosen.draw(people, rng)
    return values


def prepare(
    path: Path,
    signed: SignedTask,
    *,
    crowd: Crowd,
    dataset_name: str,
    seed: int | None,
    progress: Callable[[int], None] = lambda _: None,
    processes: int = 0,
) -> None:
    """
    Seal every user's submissions and write them to a file.

    Args:
        path: Where to.
        signed: The task.
        crowd: Who the users are.
        dataset_name: Where their items come from; values of other kinds are any that the task
            takes, and written as 0.
        seed: Chooses people and behaviours; what is sealed is never repeated.
        progress: Told how many more users are done.
        processes: Worker processes; 0 means one for each core, 1 none but this one.

    Raises:
        TaskError: The data set does not fit the task.
        SettingsError: The file cannot be written.

    Cost: some 0.1 ms a report and core; memory for some 30 bytes a user, and for a few groups of
    envelopes.
    """
    task = Task.from_bytes(signed.task_bytes)
    rng = np.random.default_rng(seed)
    kinds = assign(crowd.n_users, crowd.shares, rng)
    values = np.zeros(len(kinds), dtype=np.int64)
    if task.kind == "categorical":
        values = draw_values(dataset_name, kinds, task.domain_size, rng)
    seal = partial(_seal, signed.task_bytes, signed.digest())
    groups = _groups(kinds, values)
    with PreparedWriter(path, signed=signed, kinds=kinds, values=values) as writer:
        for number, envelopes in enumerate(_sealed(seal, groups, processes)):
            writer.add(envelopes)
            progress(min(_TOGETHER, len(kinds) - number * _TOGETHER))


def _groups(kinds: NDArray[np.uint8], values: NDArray[np.int64]) -> Iterator[Users]:
    """Give users in groups, made when they are taken: as Python's numbers, they are large."""
    for start in range(0, len(kinds), _TOGETHER):
        group = slice(start, start + _TOGETHER)
        yield list(zip(kinds[group].tolist(), values[group].tolist(), strict=True))


def _sealed(
    seal: Callable[[Users], list[bytes]], groups: Iterable[Users], processes: int
) -> Iterator[list[bytes]]:
    """Seal groups of users, in their order, a few ahead of whoever takes them."""
    workers = processes or os.cpu_count() or 1
    if workers == 1:
        yield from map(seal, groups)
        return
    waiting: deque[Future[list[bytes]]] = deque()
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        for group in groups:
            waiting.append(pool.submit(seal, group))
            if len(waiting) >= _AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@lru_cache(maxsize=1)
def _worker(task_bytes: bytes, digest: TaskDigest) -> tuple[Contributor, np.random.Generator, Task]:
    task = Task.from_bytes(task_bytes)
    return Contributor(task, digest), secure_generator(), task


def _seal(task_bytes: bytes, digest: TaskDigest, users: Users) -> list[bytes]:
    """Make the envelopes of some users, each a behaviour and a value. Run by a worker."""
    contributor, rng, task = _worker(task_bytes, digest)
    envelopes: list[bytes] = []
    for kind, item in users:
        value = item if task.kind == "categorical" else sample_value(task, rng)
        if kind == Behaviour.DROPPING:
            continue
        if kind in _RANDOM:
            envelopes.append(rng.bytes(task.envelope_bytes))
        elif kind == Behaviour.CONFLICT:
            same = _SameId(rng)
            envelopes += [contributor.prepare(value, same), contributor.prepare(value, same)]
        else:
            envelopes.append(contributor.prepare(value, rng))
    return envelopes
