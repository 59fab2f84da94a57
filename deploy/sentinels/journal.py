"""
An operator's file of sentinels: lines of JSON that are only ever added, each on the disk at once.

The first line says of which task the sentinels are, and how many. Then comes a line for each, with
the bytes that are sent, before any is registered; and a line for whatever becomes of one. A last
line that is not whole was being written when its writer stopped, and is taken off. Whoever reads
the file can tell sentinels from users.
"""

import fcntl
import json
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from common.crypto.merkle import HASH_BYTES, split
from common.crypto.receipt import envelope_hash
from common.crypto.signing import SIGNATURE_BYTES
from common.errors import SettingsError
from common.runtime.state_directory import flush_directory
from common.task_digest import TaskDigest
from user_agent.contribution import Answer

_OWNER_ONLY: Final = 0o600
_NO_LINE: Final = (ValueError, TypeError, KeyError, IndexError, RecursionError)


class State(StrEnum):
    """How far a sentinel got."""

    PLANNED = "planned"
    """Not sent yet. Of the first of these it is not known: sending may have been cut off."""
    UNKNOWN = "unknown"
    """Sent, and the answer did not come: it may be stored or not."""
    STORED = "stored"
    """The shuffler has acknowledged it, and the analyzer has not been told."""
    ACKNOWLEDGED = "acknowledged"
    """And the analyzer knows: if it is missing, the shuffler is accused."""
    REFUSED = "refused"


@dataclass(slots=True)
class Planted:
    """One sentinel, and what became of it."""

    envelope: bytes
    leaves: bytes
    """Of its reports, one after the other."""
    state: State = State.PLANNED
    receipt: bytes = b""
    reason: str = ""
    """Why the shuffler refused it, in its own words."""


class SentinelFile:
    """The sentinels of one task, as they are on the disk."""

    def __init__(self, file: BinaryIO, path: Path, planted: list[Planted]) -> None:
        self._file = file
        self._path = path
        self.planted = planted

    @classmethod
    @contextmanager
    def opened(cls, path: Path, digest: TaskDigest, count: int) -> Generator[Self]:
        """
        Begin a file, closed to others, or go on with the one that is there.

        Args:
            path: The file.
            digest: The task.
            count: How many sentinels there are to be in the end.

        Raises:
            SettingsError: It cannot be written, is held by another process, is of another task or
                of another number of sentinels, or is no such file, and is left as it is then.
        """
        with _failures(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _OWNER_ONLY)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SettingsError(f"{path} is in use by another process") from None
            with _failures(path):
                raw = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
            first, whole = _line({"task_digest": digest.hex(), "sentinels": count}), _whole(raw)
            kept = cls(file, path, [])
            if whole:
                _check_first(whole[0], digest, count, path)
                for number, line in enumerate(whole[1:], start=2):
                    kept._read(line, number, count)
            elif not first.startswith(raw):
                raise _no_file(path)
            with _failures(path):
                file.truncate(sum(map(len, whole)))
                os.fchmod(descriptor, _OWNER_ONLY)
                if not whole:
                    kept._append([first])
                    flush_directory(path.absolute().parent)
            yield kept

    def plan(self, answers: Iterable[Answer]) -> None:
        """Add sentinels, as they will be sent; when this returns they are on the disk."""
        new = [Planted(answer.envelope, b"".join(answer.leaves)) for answer in answers]
        lines = [
            _line(
                {
                    "sentinel": number,
                    "envelope_hash": envelope_hash(sentinel.envelope).hex(),
                    "leaves": [leaf.hex() for leaf in split(sentinel.leaves)],
                    "envelope": sentinel.envelope.hex(),
                }
            )
            for number, sentinel in enumerate(new, start=len(self.planted))
        ]
        with _failures(self._path):
            self._append(lines)
        self.planted.extend(new)

    def became(self, number: int, state: State, *, receipt: bytes = b"", reason: str = "") -> None:
        """Say what became of a sentinel; when this returns it is on the disk. Cost: one flush."""
        fields: dict[str, object] = {"sentinel": number, "state": state}
        if receipt:
            fields["receipt"] = receipt.hex()
        if reason:
            fields["reason"] = reason
        with _failures(self._path):
            self._append([_line(fields)])
        _apply(self.planted[number], state, receipt, reason)

    def _read(self, line: bytes, number: int, most: int) -> None:
        """
        Read a line that is not the first.

        Raises:
            SettingsError: It is none of those that are written here.
        """
        try:
            fields = json.loads(line)
            place = fields["sentinel"]
            if "state" not in fields:
                if place != len(self.planted) or place >= most:
                    raise ValueError("a sentinel out of turn")
                self.planted.append(_planned(fields))
                return
            if not 0 <= place < len(self.planted):
                raise ValueError("no such sentinel")
            receipt, reason = bytes.fromhex(fields.get("receipt", "")), fields.get("reason", "")
            if len(receipt) not in {0, SIGNATURE_BYTES} or not isinstance(reason, str):
                raise ValueError("no receipt, or no reason")
            _apply(self.planted[place], State(fields["state"]), receipt, reason)
        except _NO_LINE as error:
            raise SettingsError(f"line {number} of {self._path} is damaged") from error

    def _append(self, lines: Iterable[bytes]) -> None:
        left = memoryview(b"".join(lines))
        while left:
            left = left[self._file.write(left) :]
        os.fsync(self._file.fileno())


def _planned(fields: Any) -> Planted:  # noqa: ANN401  # whatever JSON holds
    envelope = bytes.fromhex(fields["envelope"])
    leaves = [bytes.fromhex(leaf) for leaf in fields["leaves"]]
    if not leaves or any(len(leaf) != HASH_BYTES for leaf in leaves):
        raise ValueError("no leaves")
    return Planted(envelope, b"".join(leaves))


def _apply(sentinel: Planted, state: State, receipt: bytes, reason: str) -> None:
    sentinel.state = state
    sentinel.receipt = receipt or sentinel.receipt
    sentinel.reason = reason


def _line(fields: dict[str, object]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _whole(raw: bytes) -> list[bytes]:
    """Give the lines that are whole, with their ends."""
    return [line + b"\n" for line in raw.split(b"\n")[:-1]]


def _check_first(line: bytes, digest: TaskDigest, count: int, path: Path) -> None:
    try:
        fields = json.loads(line)
        found, sentinels = fields["task_digest"], fields["sentinels"]
    except _NO_LINE as error:
        raise _no_file(path) from error
    if not (isinstance(found, str) and isinstance(sentinels, int)):
        raise _no_file(path)
    if found != digest.hex():
        raise SettingsError(f"{path} holds sentinels of another task")
    if sentinels != count:
        raise SettingsError(
            f"{path} is of {sentinels} sentinels, and {count} were asked for: ask for as many to "
            "go on with them, or name another file"
        )


def _no_file(path: Path) -> SettingsError:
    return SettingsError(f"{path} is there already, and holds no sentinels")


@contextmanager
def _failures(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from error
