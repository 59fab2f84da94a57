"""
A file of simulated users whose reports were sealed ahead, for one task.

    magic ‖ head ‖ task ‖ behaviours ‖ values ‖ envelopes ‖ SHA-256 of all before

Numbers are little-endian. Every user has a byte of behaviour and four bytes of value; envelopes
have the task's one length, and follow each other in the order of users, as many for each as the
behaviour asks for. The values are simulated people's, so that the error of an estimate can be
worked out. Never put real ones in: beside the envelopes they would name everybody's answer.
"""

import hashlib
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError, ShuffleDpError
from common.signing import SIGNATURE_BYTES, SignedTask
from common.task import MAX_TASK_BYTES, Task
from deploy.load.behaviour import ENVELOPES, Behaviour, is_counted

_MAGIC: Final = b"shuffledp-load\x01\n"
_HEAD: Final = struct.Struct("<QII")
"""Users, bytes of an envelope, bytes of the task with its signature."""
_HASH_BYTES: Final = 32
_VALUE: Final = np.dtype("<u4")
_READ_AT_ONCE: Final = 2**20


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A file that was checked, and its users."""

    path: Path
    signed: SignedTask
    kinds: NDArray[np.uint8]
    """Of each user, shape (n_users,)."""
    values: NDArray[np.uint32]
    """Of each user; no meaning for one whose value is not to be counted."""
    envelope_bytes: int
    begin: int
    """Where in the file the envelopes begin."""

    def __getstate__(self) -> dict[str, object]:
        """Leave the mapped file out: whoever it is sent to maps it anew."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def n_users(self) -> int:
        """All users, those who misbehave too."""
        return len(self.kinds)

    @cached_property
    def first_envelope(self) -> NDArray[np.int64]:
        """Of each user, the number of the first envelope; and of all, shape (n_users + 1,)."""
        return np.concatenate([[0], np.cumsum(ENVELOPES[self.kinds])]).astype(np.int64)

    @cached_property
    def envelopes(self) -> NDArray[np.uint8]:
        """All envelopes, mapped from the file, shape (envelopes, envelope_bytes)."""
        shape = (int(self.first_envelope[-1]), self.envelope_bytes)
        if not shape[0]:
            return np.empty(shape, dtype=np.uint8)
        return np.memmap(self.path, dtype=np.uint8, mode="r", offset=self.begin, shape=shape)

    def truth(self, n_users: int, domain_size: int) -> NDArray[np.float64]:
        """Give shares among the first n_users of those whose value must be counted."""
        counted = self.values[:n_users][is_counted(self.kinds[:n_users])]
        return np.bincount(counted, minlength=domain_size) / max(1, len(counted))


class PreparedWriter:
    """Writes a file, envelope by envelope; it has its name once it is whole."""

    def __init__(
        self,
        path: Path,
        *,
        signed: SignedTask,
        kinds: NDArray[np.uint8],
        values: NDArray[np.int64],
    ) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._hash = hashlib.sha256()
        self._size = Task.from_bytes(signed.task_bytes).envelope_bytes
        self._left = int(ENVELOPES[kinds].sum())
        task = signed.signature + signed.task_bytes
        self._ahead = (
            _MAGIC + _HEAD.pack(len(kinds), self._size, len(task)) + task,
            kinds.tobytes() + values.astype(_VALUE).tobytes(),
        )

    def __enter__(self) -> Self:
        """Begin the file."""
        try:
            self._file: BinaryIO = self._part.open("wb")
            for part in self._ahead:
                self._write(part)
        except OSError as error:
            raise SettingsError(f"{self._path} cannot be written: {error.strerror}") from error
        return self

    def add(self, envelopes: Iterable[bytes]) -> None:
        """Add the next envelopes."""
        for envelope in envelopes:
            if len(envelope) != self._size:
                raise ValueError(
                    f"an envelope of {len(envelope)} bytes among those of {self._size}"
                )
            self._left -= 1
            self._write(envelope)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish the file, or leave nothing."""
        with self._file:
            if kind is None and self._left == 0:
                self._file.write(self._hash.digest())
                self._file.flush()
                os.fsync(self._file.fileno())
                self._part.replace(self._path)
                return
        self._part.unlink(missing_ok=True)
        if kind is None:
            raise ValueError(f"{self._left} envelopes are missing")

    def _write(self, part: bytes) -> None:
        try:
            self._file.write(part)
        except OSError as error:
            raise SettingsError(f"{self._path} cannot be written: {error.strerror}") from error
        self._hash.update(part)


def read(path: Path) -> Prepared:
    """
    Read and check a prepared file, whole.

    Raises:
        SettingsError: It cannot be read, is none, was cut, or is damaged.

    Cost: a hash of the whole file, a second for some gigabytes; memory for five bytes a user.
    """
    try:
        with path.open("rb") as file:
            return _read(file, path)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error


def _read(file: BinaryIO, path: Path) -> Prepared:
    size = os.fstat(file.fileno()).st_size
    start = file.read(len(_MAGIC) + _HEAD.size)
    if not start.startswith(_MAGIC) or len(start) < len(_MAGIC) + _HEAD.size:
        raise SettingsError(f"{path} holds no prepared submissions")
    n_users, envelope_bytes, task_bytes = _HEAD.unpack(start[len(_MAGIC) :])
    most = MAX_TASK_BYTES + SIGNATURE_BYTES
    users_bytes = n_users * (1 + _VALUE.itemsize)
    if not SIGNATURE_BYTES < task_bytes <= most or len(start) + task_bytes + users_bytes > size:
        raise SettingsError(f"{path} was cut off, or is damaged")
    task = file.read(task_bytes)
    kinds = np.frombuffer(file.read(n_users), dtype=np.uint8)
    values = np.frombuffer(file.read(n_users * _VALUE.itemsize), dtype=_VALUE)
    begin = file.tell()
    if n_users == 0 or len(values) != n_users or kinds.max() >= len(Behaviour):
        raise SettingsError(f"{path} is damaged: its users are none")
    if begin + int(ENVELOPES[kinds].sum()) * envelope_bytes + _HASH_BYTES != size:
        raise SettingsError(f"{path} was cut off, or is damaged")
    _check_hash(file, size, path)
    signed = SignedTask(task_bytes=task[SIGNATURE_BYTES:], signature=task[:SIGNATURE_BYTES])
    _check_task(signed, envelope_bytes, values, path)
    return Prepared(
        path=path,
        signed=signed,
        kinds=kinds,
        values=values.astype(np.uint32),
        envelope_bytes=envelope_bytes,
        begin=begin,
    )


def _check_hash(file: BinaryIO, size: int, path: Path) -> None:
    found, left = hashlib.sha256(), size - _HASH_BYTES
    file.seek(0)
    while left > 0 and (part := file.read(min(left, _READ_AT_ONCE))):
        found.update(part)
        left -= len(part)
    if file.read() != found.digest():
        raise SettingsError(f"{path} is damaged: its bytes do not have the hash that it ends with")


def _check_task(
    signed: SignedTask, envelope_bytes: int, values: NDArray[np.uint32], path: Path
) -> None:
    try:
        task = Task.from_bytes(signed.task_bytes)
    except ShuffleDpError as error:
        raise SettingsError(f"{path} is damaged: {error}") from error
    if envelope_bytes != task.envelope_bytes or values.max() >= task.domain_size:
        raise SettingsError(f"{path} is damaged: its envelopes or values do not fit its task")
