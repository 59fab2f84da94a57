"""
What mixing takes and tells: all users' reports or none, and no time but the permutation's.

How long dummies take to seal, and groups to be read, tells how many there are. While these batches
are mixed every clock stands but for those moments: whatever is told of them is no longer zero.
"""

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from common.crypto.hpke import HpkePublicKey, SealContext
from common.errors import DamagedStorageError
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.checks import Checks
from deploy.audit.sample_task import sample_task, sampling_task
from deploy.audit.stand_ins.in_place import InPlace
from deploy.audit.stand_ins.still_clock import clocks_at
from shuffler.shuffle import Mixed, Mixing
from shuffler.storage.batch_files import BatchFiles
from shuffler.storage.batch_key import KEY_BYTES, BatchKey

_USERS: Final = 30
_ITEMS: Final = 4
_COINS: Final = 20


def check_mixing(checks: Checks, path: Path, rng: np.random.Generator) -> None:
    """Mix a few users' reports, of tasks that drop and add some and of one that does not."""
    plain = sample_task(protocol="ldp-grr", domain_size=_ITEMS, local_epsilon=2.0)
    sampled = sampling_task(dummies=_COINS, domain_size=_ITEMS, delta=0.1)
    for task in (plain, sampled):
        _check_seconds(checks, task, path, rng)
        _check_users(checks, task, path, rng)


@dataclass(slots=True)
class _Waits:
    """Seconds that passed for whoever was waited for."""

    seconds: float = 0.0

    def groups(self, groups: list[bytes]) -> Iterator[bytes]:
        """Give groups, and let a second pass for each."""
        for group in groups:
            self.seconds += 1.0
            yield group

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let all clocks stand but for these seconds while a block runs."""
        with clocks_at(lambda: self.seconds):
            yield


@dataclass(slots=True)
class _SlowPool(InPlace):
    """A pool that takes a second for each chunk that it seals."""

    waits: _Waits

    def seal(
        self, key: HpkePublicKey, plaintexts: bytes, plaintext_bytes: int, context: SealContext
    ) -> Future[bytes]:
        """Seal one chunk, and let a second pass."""
        self.waits.seconds += 1.0
        return InPlace.seal(self, key, plaintexts, plaintext_bytes, context)


def _check_seconds(checks: Checks, task: Task, path: Path, rng: np.random.Generator) -> None:
    waits = _Waits()
    with waits.alone():
        mixed = _mix(task, _groups(task, _USERS, rng), path, rng, waits)
    checks.must(
        "what is told of the time is none of reading and sealing",
        mixed is not None and mixed.seconds == 0 and waits.seconds >= _USERS,
    )


def _check_users(checks: Checks, task: Task, path: Path, rng: np.random.Generator) -> None:
    for n_users in (0, _USERS - 1, _USERS + 1):
        mixed = _mix(task, _groups(task, n_users, rng), path, rng, _Waits())
        checks.must(
            f"{task.protocol}: no batch of one user fewer than came, or of one more, is mixed",
            mixed is None,
        )


def _groups(task: Task, n_users: int, rng: np.random.Generator) -> list[bytes]:
    """Give random bytes in the place of each user's sealed reports."""
    size = task.reports_per_user * task.sealed_report_bytes
    return [rng.bytes(size) for _ in range(n_users)]


def _mix(
    task: Task, groups: list[bytes], path: Path, rng: np.random.Generator, waits: _Waits
) -> Mixed | None:
    """Mix what is there of a batch; None where that is refused."""
    mixing = Mixing(
        task=task,
        digest=TaskDigest(hashlib.sha256(task.to_bytes()).digest()),
        n_users=_USERS,
        files=BatchFiles(path, BatchKey(rng.bytes(KEY_BYTES))),
        pool=_SlowPool(waits),
        rng=rng,
    )
    try:
        return mixing.mix(waits.groups(groups))
    except DamagedStorageError:
        return None
