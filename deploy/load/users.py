"""Simulated users whose submissions are sealed in advance, in memory or in a file."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Final, Self, cast

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.crypto import hpke_pool, randomness
from shuffledp.common.crypto.signing import SIGNATURE_BYTES, SignedTask
from shuffledp.common.errors import SettingsError, TaskError
from shuffledp.common.mechanisms.base import Mechanism, Reports, null_reports
from shuffledp.common.messages.submission import Value
from shuffledp.common.task.kinds import KINDS
from shuffledp.common.task.task import SUBMISSION_ID_BYTES, Task
from shuffledp.deploy.datasets.sources import dataset, is_file
from shuffledp.deploy.load.behaviour import ENVELOPES, FLOOD, Behaviour, LoadPlan, is_counted
from shuffledp.deploy.tasks.value_parser import joined, sample_value, value_of
from shuffledp.deploy.terminal.files import atomic_output
from shuffledp.user_agent.contribution import Contributor, encoder_for

_GROUP: Final = 500
"""Users per sealing job of a worker process."""
_FEW: Final = 20
"""Sealing jobs that take no longer than to start worker processes."""
_OVERSIZE: Final = bytes(64)
_COPIES: Final = (1, 2, FLOOD, 1, 1, 1, 1)
"""Number of times that each envelope is sent, by behaviour."""
_ARRAYS: Final = {
    "task": np.uint8,
    "kinds": np.uint8,
    "values": np.uint32,
    "sizes": np.uint32,
    "envelopes": np.uint8,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class SealedUsers:
    """Users whose submissions are sealed in advance; a prepared file holds plain values too."""

    signed: SignedTask
    kinds: NDArray[np.uint8]
    """Behaviours, shape (n_users,)."""
    values: NDArray[np.uint32]
    """Items, shape (n_users,); 0 for users who are not counted and for other kinds of values."""
    sizes: NDArray[np.uint32]
    """Bytes of each sealed envelope, in user order, ENVELOPES per user; shape (envelopes,)."""
    envelopes: NDArray[np.uint8]
    tokens: Sequence[bytes] = ()
    """A token per user; empty if the task requires none. Not saved with the envelopes."""

    @property
    def n_users(self) -> int:
        """Number of users, including misbehaving ones."""
        return len(self.kinds)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Cumulative number of envelopes, up to and including each user."""
        return np.cumsum(ENVELOPES[self.kinds])

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """Where each envelope begins, and the last one ends."""
        return np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)])

    def rows(self, first: int, end: int) -> list[bytes]:
        """Return the envelopes `first` .. `end`-1, without repeats, in user order."""
        places = self._places[first : end + 1].tolist()
        return [self.envelopes[start:stop].tobytes() for start, stop in itertools.pairwise(places)]

    def submissions(self, user: int) -> list[bytes]:
        """Return the envelopes that a user sends, including repeats; none for DROPPING."""
        kind, end = int(self.kinds[user]), int(self._ends[user])
        sent = self.rows(end - int(ENVELOPES[kind]), end)
        if kind == Behaviour.OVERSIZED:
            return [sent[0] + _OVERSIZE]
        return sent * _COPIES[kind]

    def part(self, first: int, end: int) -> Self:
        """Return users `first` .. `end`-1 without copying."""
        before, after = int(self._ends[first - 1]) if first else 0, int(self._ends[end - 1])
        return replace(
            self,
            kinds=self.kinds[first:end],
            values=self.values[first:end],
            sizes=self.sizes[before:after],
            envelopes=self.envelopes[self._places[before] : self._places[after]],
            tokens=self.tokens[first:end],
        )

    def token(self, user: int) -> bytes:
        """Return a user's token; empty if the task requires none."""
        return self.tokens[user] if self.tokens else b""

    def truth(self, n_users: int, domain_size: int) -> NDArray[np.float64]:
        """Return the items' shares among the counted users of the first n_users."""
        counted = self.values[:n_users][is_counted(self.kinds[:n_users])]
        return np.bincount(counted, minlength=domain_size) / max(1, len(counted))

    def save(self, path: Path) -> None:
        """Write a prepared file, readable by its owner only, or raise SettingsError."""
        task = np.frombuffer(self.signed.signature + self.signed.task_bytes, dtype=np.uint8)
        with atomic_output(path) as scratch, scratch.open("wb") as file:
            scratch.chmod(0o600)
            arrays = {name: getattr(self, name) for name in list(_ARRAYS)[1:]}
            np.savez(file, task=task, **arrays)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a prepared file, or raise SettingsError if it is damaged, unreadable or invalid."""
        try:
            with path.open("rb") as raw_file, np.load(raw_file, allow_pickle=False) as file:
                arrays = {name: file[name] for name in _ARRAYS}
            types = {name: array.dtype for name, array in arrays.items()}
            raw = arrays.pop("task").tobytes()
            signed = SignedTask(task_bytes=raw[SIGNATURE_BYTES:], signature=raw[:SIGNATURE_BYTES])
            task, found = Task.from_bytes(signed.task_bytes), cls(signed=signed, **arrays)
            fits = (
                found.kinds.shape == found.values.shape
                and found.sizes.shape == (ENVELOPES[found.kinds].sum(),)
                and found.envelopes.shape == (found.sizes.sum(),)
                and set(found.sizes.tolist()) <= set(task.envelope_sizes)
            )
            if types != _ARRAYS or not fits or found.values.max() >= task.domain_size:
                raise ValueError("the arrays do not fit each other")  # noqa: TRY301  # reported like numpy's
        except OSError as error:
            raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
        except Exception as error:  # numpy and zipfile raise many kinds
            rule = f"{path} is damaged or from another version; prepare it again"
            raise SettingsError(rule) from error
        return found


def draw_values(
    name: str, kinds: NDArray[np.uint8], task: Task, rng: np.random.Generator
) -> tuple[list[Value], NDArray[np.uint32]]:
    """
    Draw a person of a data set for each counted user; return values and items, both of n users.

    A file's values are encoded as devices do; items without names, by their place. Other data sets
    have items only: users have random values of other kinds. Raises TaskError if a value does not
    fit the task.
    """
    counted, items = is_counted(kinds), np.zeros(len(kinds), dtype=np.uint32)
    of_items = KINDS[task.kind].histogram
    if not (of_items or is_file(name)):
        return [sample_value(task, rng) for _ in kinds], items
    columns = ",".join(task.mechanism.attribute_names) or None
    chosen = dataset(name, people := int(counted.sum()), columns)
    drawn = np.zeros(len(kinds), dtype=np.int64)
    drawn[counted] = chosen.draw(people, rng)
    known = np.arange(chosen.domain_size)
    if is_file(name) and (task.labels or task.edges or not of_items):
        encode = encoder_for(task, None)
        encoded = chosen.parsed(lambda text: encode(text, rng))
        if not of_items:
            return [chosen.labels[person] for person in drawn.tolist()], items
        known = np.concatenate(encoded)
    elif chosen.domain_size != task.domain_size:
        raise TaskError(
            f"{chosen.name} has {chosen.domain_size} items and the task has {task.domain_size}: "
            f"use a data set that fits, such as zipf:{task.domain_size}"
        )
    items[counted] = known[drawn[counted]]
    values = {item: value_of(task, item) for item in {*items.tolist()}}
    return [values[item] for item in items.tolist()], items


class GroupContributor(Contributor):
    """Prepares many users' submissions, with reports, dummies and orders drawn for all at once."""

    def prepare_group(
        self, values: Sequence[Value], ids: Sequence[bytes], rng: np.random.Generator
    ) -> list[bytes]:
        """Prepare an envelope per value and id; raise ValueRangeError if a value does not fit."""
        if not values:
            return []
        lengths, drawn = self._reports(values, rng)
        sealed = iter([self._seal_report(report.tobytes()) for report in drawn])
        envelopes = []
        for submission_id, length in zip(ids, lengths.tolist(), strict=True):
            reports = b"".join(itertools.islice(sealed, length))
            envelopes.append(self._seal_envelope(submission_id + reports))
        return envelopes

    def _reports(
        self, values: Sequence[Value], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], Reports]:
        """Draw n > 0 users' numbers of reports, shape (n,), and all reports in sending order."""
        n_users, allowed = len(values), np.array(self._task.lengths)
        most, own = int(allowed[-1]), self._task.own_reports
        real = self._mechanism.randomize(joined([self._encode(v, rng) for v in values]), rng)
        table = null_reports(n_users * most, real.dtype).reshape(n_users, most).copy()
        table[:, :own] = real.reshape(n_users, own)
        lengths = np.full(n_users, allowed[0])
        if most > own:
            mechanism = cast("Mechanism", self._mechanism)
            counts, dummies = self._task.dummies.draw(mechanism, n_users, rng)
            table[:, own:][np.arange(most - own) < counts[:, None]] = dummies
            lengths = allowed[np.searchsorted(allowed, own + counts)]
        sent = np.arange(most) < lengths[:, None]
        order = np.argsort(np.where(sent, rng.random(table.shape), 1.0), axis=1)
        found: Reports = np.take_along_axis(table, order, axis=1)[sent]
        return lengths, found


def seal(
    signed: SignedTask, plan: LoadPlan, progress: Callable[[int], None] = lambda _: None
) -> SealedUsers:
    """Seal the submissions of a plan's users; raise TaskError if the data set does not fit."""
    task = Task.from_bytes(signed.task_bytes)
    rng = np.random.default_rng(plan.seed)
    kinds = plan.draw_kinds(rng)
    values, items = draw_values(plan.dataset, kinds, task, rng)
    return replace(seal_values(signed, kinds, values, progress), values=items)


def seal_values(
    signed: SignedTask,
    kinds: NDArray[np.uint8],
    values: Sequence[Value],
    progress: Callable[[int], None] = lambda _: None,
) -> SealedUsers:
    """Seal users' submissions by behaviour. Cost: 0.1 ms per seal and 0.2 ms per user on a core."""
    groups = [slice(start, start + _GROUP) for start in range(0, len(kinds), _GROUP)]
    sealed: list[list[bytes]] = []
    with hpke_pool.worker_pool() if len(groups) > _FEW else ThreadPoolExecutor(1) as pool:
        given = ([array[group] for group in groups] for array in (kinds, values))
        for envelopes in pool.map(partial(_seal_group, signed), *given):
            progress(len(kinds[groups[len(sealed)]]))
            sealed.append(envelopes)
    envelopes = list(itertools.chain.from_iterable(sealed))
    return SealedUsers(
        signed=signed,
        kinds=kinds,
        values=np.zeros(len(kinds), dtype=np.uint32),
        sizes=np.array(list(map(len, envelopes)), dtype=np.uint32),
        envelopes=np.frombuffer(b"".join(envelopes), dtype=np.uint8),
    )


@lru_cache(maxsize=1)
def _worker(signed: SignedTask) -> tuple[GroupContributor, Task, np.random.Generator]:
    """Return a worker process's contributor, task and random generator."""
    task = Task.from_bytes(signed.task_bytes)
    return GroupContributor(task, signed.digest()), task, randomness.secure_generator()


def _seal_group(
    signed: SignedTask, kinds: NDArray[np.uint8], values: Sequence[Value]
) -> list[bytes]:
    """Seal some users' envelopes in a worker process; those that must not open are random bytes."""
    contributor, task, rng = _worker(signed)
    genuine = is_counted(kinds)
    people, ids = [], []
    for user in np.flatnonzero(genuine).tolist():
        envelopes = int(ENVELOPES[kinds[user]])
        people += [values[user]] * envelopes
        ids += [rng.bytes(SUBMISSION_ID_BYTES)] * envelopes
    sealed = iter(contributor.prepare_group(people, ids, rng))
    return [
        next(sealed) if opens else rng.bytes(task.envelope_sizes[-1])
        for opens in np.repeat(genuine, ENVELOPES[kinds])
    ]
