"""Simulated users of a load run: sealed before anything is sent, in memory or in a file."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from common.crypto.signing import SIGNATURE_BYTES, SignedTask
from common.errors import SettingsError, TaskError
from common.task.task import Task
from deploy.datasets.choice import dataset
from deploy.load.behaviour import ENVELOPES, FLOOD, Behaviour, assign, is_counted
from deploy.load.people import GROUP, draw_ids, worker, workers
from deploy.load.plan import Crowd
from deploy.tasks.sample_value import sample_value
from deploy.terminal.output_file import whole

_OVERSIZE: Final = bytes(64)
"""Extra bytes of an oversized envelope."""
_COPIES: Final = (1, 2, FLOOD, 1, 1, 1, 1)
"""Times that each envelope is sent, by behaviour."""
_ARRAYS: Final = {"task": np.uint8, "kinds": np.uint8, "values": np.uint32, "envelopes": np.uint8}
"""Types of the arrays in a prepared file."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SealedUsers:
    """
    Users whose submissions are sealed: sealing costs more than sending, and would be measured.

    A file of them holds simulated values beside the envelopes: never seal real ones here.
    """

    signed: SignedTask
    kinds: NDArray[np.uint8]
    """Behaviours, shape (n_users,)."""
    values: NDArray[np.uint32]
    """Items, shape (n_users,); 0 for users who are not counted and for other kinds of values."""
    envelopes: NDArray[np.uint8]
    """Shape (envelopes, length), in the order of users, ENVELOPES of each."""

    @property
    def n_users(self) -> int:
        """All users, misbehaving ones included."""
        return len(self.kinds)

    @cached_property
    def _views(self) -> tuple[memoryview, memoryview, memoryview]:
        """Behaviours, numbers of first envelopes, and all bytes: read faster than arrays."""
        first = np.concatenate([[0], np.cumsum(ENVELOPES[self.kinds])])
        return self.kinds.data, first.data, self.envelopes.reshape(-1).data

    def submissions(self, user: int) -> list[bytes]:
        """Return the envelopes that a user sends, repeats included; none for DROPPING."""
        kinds, first, raw = self._views
        kind, size = kinds[user], self.envelopes.shape[1]
        made = [
            bytes(raw[number * size : (number + 1) * size])
            for number in range(first[user], first[user + 1])
        ]
        if kind == Behaviour.OVERSIZED:
            return [made[0] + _OVERSIZE]
        return made * _COPIES[kind]

    def truth(self, n_users: int, domain_size: int) -> NDArray[np.float64]:
        """Return the shares of items among the counted ones of the first n_users."""
        counted = self.values[:n_users][is_counted(self.kinds[:n_users])]
        return np.bincount(counted, minlength=domain_size) / max(1, len(counted))

    def save(self, path: Path) -> None:
        """
        Write a prepared file, readable by its owner only.

        Raises:
            SettingsError: The file cannot be written.
        """
        task = np.frombuffer(self.signed.signature + self.signed.task_bytes, dtype=np.uint8)
        with whole(path) as scratch, scratch.open("wb") as file:
            scratch.chmod(0o600)
            np.savez(
                file, task=task, kinds=self.kinds, values=self.values, envelopes=self.envelopes
            )

    @classmethod
    def load(cls, path: Path) -> Self:
        """
        Read a prepared file.

        Raises:
            SettingsError: It cannot be read, is of another version, or is damaged.

        Cost: memory for the whole file.
        """
        try:
            return cls._read(path)
        except OSError as error:
            raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
        except Exception as error:  # numpy and zipfile raise many kinds
            raise SettingsError(
                f"{path} is damaged, or was prepared by another version: prepare it again"
            ) from error

    @classmethod
    def _read(cls, path: Path) -> Self:
        with path.open("rb") as raw_file, np.load(raw_file, allow_pickle=False) as file:
            arrays = {name: file[name] for name in _ARRAYS}
        types = {name: array.dtype for name, array in arrays.items()}
        raw = arrays.pop("task").tobytes()
        signed = SignedTask(task_bytes=raw[SIGNATURE_BYTES:], signature=raw[:SIGNATURE_BYTES])
        task, found = Task.from_bytes(signed.task_bytes), cls(signed=signed, **arrays)
        shape = (ENVELOPES[found.kinds].sum(), task.envelope_bytes)
        fits = found.kinds.shape == found.values.shape and found.envelopes.shape == shape
        if types != _ARRAYS or not fits or found.values.max() >= task.domain_size:
            raise ValueError("the arrays do not fit each other")
        return found


def draw_values(
    name: str, kinds: NDArray[np.uint8], domain_size: int, rng: np.random.Generator
) -> NDArray[np.uint32]:
    """
    Draw people from a data set, a different one for each user whose value must be counted.

    Args:
        name: As `deploy.datasets.choice` names it.
        kinds: Behaviours, shape (n,).
        domain_size: The task's.
        rng: Chooses the people.

    Returns:
        Items, shape (n,); 0 for users whose value is not counted.

    Raises:
        TaskError: There is no such data set, or it has too few people or other items.
    """
    counted = is_counted(kinds)
    people = int(counted.sum())
    chosen = dataset(name, people)
    if chosen.domain_size != domain_size:
        raise TaskError(
            f"{chosen.name} has {chosen.domain_size} items and the task has {domain_size}: name a "
            f"data set that fits, such as zipf:{domain_size}"
        )
    values = np.zeros(len(kinds), dtype=np.uint32)
    values[counted] = chosen.draw(people, rng)
    return values


def seal(
    signed: SignedTask,
    crowd: Crowd,
    *,
    seed: int | None,
    progress: Callable[[int], None] = lambda _: None,
    processes: int = 0,
) -> SealedUsers:
    """
    Seal every user's submissions.

    Args:
        signed: The task.
        crowd: The users.
        seed: Chooses people and behaviours.
        progress: Told how many more users are done.
        processes: Worker processes; 0 for one a core, 1 for this one.

    Raises:
        TaskError: The data set does not fit the task.

    Cost: about 0.1 ms a seal and core, and memory for all envelopes.
    """
    task = Task.from_bytes(signed.task_bytes)
    rng = np.random.default_rng(seed)
    kinds = assign(crowd.n_users, crowd.shares, rng)
    values = np.zeros(len(kinds), dtype=np.uint32)
    if task.kind == "categorical":
        values = draw_values(crowd.dataset, kinds, task.domain_size, rng)
    size = task.envelope_bytes
    envelopes = np.empty((int(ENVELOPES[kinds].sum()), size), dtype=np.uint8)
    starts = range(GROUP, len(kinds), GROUP)
    groups = np.split(kinds, starts), np.split(values, starts)
    done = 0
    with workers(processes) as pool:
        for group, made in zip(
            groups[0], pool.map(partial(_seal_group, signed), *groups), strict=True
        ):
            rows = np.frombuffer(made, dtype=np.uint8).reshape(-1, size)
            envelopes[done : done + len(rows)] = rows
            done += len(rows)
            progress(len(group))
    return SealedUsers(signed=signed, kinds=kinds, values=values, envelopes=envelopes)


def _seal_group(signed: SignedTask, kinds: NDArray[np.uint8], values: NDArray[np.uint32]) -> bytes:
    """Seal some users' envelopes, in a worker process; those that must not open are random."""
    contributor, task, rng = worker(signed)
    genuine = is_counted(kinds)
    people = [
        item if task.kind == "categorical" else sample_value(task, rng)
        for item in values[genuine].tolist()
    ]
    copies = ENVELOPES[kinds[genuine]].tolist()
    ids = draw_ids(len(people), rng)
    repeated = [user for user, times in enumerate(copies) for _ in range(times)]
    sealed = iter(
        contributor.prepare([people[u] for u in repeated], rng, [ids[u] for u in repeated])
    )
    return b"".join(
        next(sealed) if counted else rng.bytes(task.envelope_bytes)
        for counted in np.repeat(genuine, ENVELOPES[kinds])
    )
