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
import stat
import struct
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import numpy as np
from numpy.typing import NDArray

from common.crypto.signing import SIGNATURE_BYTES, SignedTask
from common.errors import SettingsError, ShuffleDpError
from common.task.task import MAX_TASK_BYTES, Task
from deploy.load.behaviour import ENVELOPES, Behaviour, counts_of, is_counted
from deploy.load.plan import MAX_USERS
from deploy.terminal.output_file import cannot_write

_MAGIC: Final = b"shuffledp-load\x01\n"
_HEAD: Final = struct.Struct("<QII")
"""Users, bytes of an envelope, bytes of the task with its signature."""
_HASH_BYTES: Final = 32
_VALUE: Final = np.dtype("<u4")
_PER_USER: Final = ENVELOPES.astype(np.uint8)
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
        found = np.zeros(self.n_users + 1, dtype=np.int64)
        np.cumsum(_PER_USER[self.kinds], out=found[1:])
        return found

    @cached_property
    def envelopes(self) -> NDArray[np.uint8]:
        """All envelopes, mapped from the file, shape (envelopes, envelope_bytes)."""
        shape = (_envelopes_of(self.kinds), self.envelope_bytes)
        if not shape[0]:
            return np.empty(shape, dtype=np.uint8)
        return np.memmap(self.path, dtype=np.uint8, mode="r", offset=self.begin, shape=shape)

    def truth(self, n_users: int, domain_size: int) -> NDArray[np.float64]:
        """Give shares among the first n_users of those whose value must be counted."""
        counted = self.values[:n_users][is_counted(self.kinds[:n_users])]
        return np.bincount(counted, minlength=domain_size) / max(1, len(counted))


class PreparedWriter:
    """
    Writes a file, envelope by envelope; it has its name once it is whole.

    It takes the place of a file of that name, if that is an ordinary one. Nobody else can read it,
    nor could somebody who writes to its folder have it written elsewhere.
    """

    def __init__(
        self,
        path: Path,
        *,
        signed: SignedTask,
        kinds: NDArray[np.uint8],
        values: NDArray[np.int64],
    ) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self._size = Task.from_bytes(signed.task_bytes).envelope_bytes
        self._left = _envelopes_of(kinds)
        task = signed.signature + signed.task_bytes
        self._ahead = (
            _MAGIC + _HEAD.pack(len(kinds), self._size, len(task)) + task,
            kinds.tobytes() + values.astype(_VALUE).tobytes(),
        )

    def __enter__(self) -> Self:
        """Begin the file."""
        try:
            if os.path.lexists(self._path) and not stat.S_ISREG(self._path.lstat().st_mode):
                raise SettingsError(f"{self._path} cannot be written: it is no ordinary file")
            # A name of its own, made anew and never followed, that only its owner opens.
            number, part = tempfile.mkstemp(
                prefix=f"{self._path.name}.", suffix=".part", dir=self._path.parent
            )
        except OSError as error:
            raise cannot_write(self._path, error) from error
        self._part, self._file = Path(part), os.fdopen(number, "wb")
        try:
            for ahead in self._ahead:
                self._write(ahead)
        except BaseException:
            self._leave_nothing()
            raise
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
        if kind is not None or self._left:
            self._leave_nothing()
            if kind is None:
                raise ValueError(f"{self._left} envelopes are missing")
            return
        try:
            self._file.write(self._hash.digest())
            self._file.flush()
            os.fsync(self._file.fileno())
            self._part.replace(self._path)
        except OSError as failed:
            self._leave_nothing()
            raise cannot_write(self._path, failed) from failed
        self._file.close()

    def _leave_nothing(self) -> None:
        with suppress(OSError):  # what could not be written before cannot be now
            self._file.close()
        self._part.unlink(missing_ok=True)

    def _write(self, part: bytes) -> None:
        try:
            self._file.write(part)
        except OSError as error:
            raise cannot_write(self._path, error) from error
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
    if n_users > MAX_USERS:
        raise SettingsError(f"{path} holds {n_users} users; it may hold {MAX_USERS} at most")
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
    if begin + _envelopes_of(kinds) * envelope_bytes + _HASH_BYTES != size:
        raise SettingsError(f"{path} was cut off, or is damaged")
    _check_hash(file, size, path)
    signed = SignedTask(task_bytes=task[SIGNATURE_BYTES:], signature=task[:SIGNATURE_BYTES])
    _check_task(signed, envelope_bytes, values, path)
    return Prepared(
        path=path,
        signed=signed,
        kinds=kinds,
        values=values.astype(np.uint32, copy=False),
        envelope_bytes=envelope_bytes,
        begin=begin,
    )


def _envelopes_of(kinds: NDArray[np.uint8]) -> int:
    """Count envelopes of users, all together."""
    return sum(int(ENVELOPES[kind]) * number for kind, number in counts_of(kinds).items())


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
