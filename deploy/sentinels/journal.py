"""
An operator's file of sentinels: an append-only log of JSON lines, each flushed to the disk.

The first line names the task and the number of sentinels. Then comes a line for each, with the
bytes to send, before any is registered; and a line for each change of state. A partial last line
is dropped. The file distinguishes sentinels from users: keep it secret.
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
from common.crypto.signing import SIGNATURE_BYTES, envelope_hash
from common.errors import SettingsError
from common.runtime.state_directory import flush_directory
from common.task_digest import TaskDigest
from user_agent.contribution import PreparedSubmission

_OWNER_ONLY: Final = 0o600
_INVALID: Final = (ValueError, TypeError, KeyError, IndexError, RecursionError)


class SentinelState(StrEnum):
    """How far a sentinel got."""

    PLANNED = "planned"
    """Not sent yet; the first of these may have been sent when the writer stopped."""
    UNKNOWN = "unknown"
    """Sent without an answer: it may be stored or not."""
    STORED = "stored"
    """Acknowledged by the shuffler; the analyzer does not know yet."""
    ACKNOWLEDGED = "acknowledged"
    """The analyzer knows too: if it is missing, the shuffler is accused."""
    REFUSED = "refused"


@dataclass(slots=True)
class PlantedSentinel:
    """One test submission and its state."""

    envelope: bytes
    leaves: bytes
    """Of its reports, concatenated."""
    state: SentinelState = SentinelState.PLANNED
    receipt: bytes = b""
    reason: str = ""
    """Why the shuffler refused it, in its own words."""


class SentinelFile:
    """The sentinels of one task, as they are on the disk."""

    def __init__(self, file: BinaryIO, path: Path, sentinels: list[PlantedSentinel]) -> None:
        self._file = file
        self._path = path
        self.sentinels = sentinels

    @classmethod
    @contextmanager
    def opened(cls, path: Path, digest: TaskDigest, count: int) -> Generator[Self]:
        """
        Create a file that only its owner reads, or continue an existing one.

        Args:
            path: The file.
            digest: Of the task.
            count: How many sentinels there will be.

        Raises:
            SettingsError: The file cannot be written, is held by another process, is of another
                task or number of sentinels, or is something else, and is left unchanged.
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
            first = _line({"task_digest": digest.hex(), "sentinels": count})
            whole = raw.split(b"\n")[:-1]
            kept = cls(file, path, [])
            if whole:
                _check_first(whole[0], digest, count, path)
                for number, line in enumerate(whole[1:], start=2):
                    kept._read(line, number, count)
            elif not first.startswith(raw):
                raise _not_sentinels(path)
            with _failures(path):
                file.truncate(raw.rfind(b"\n") + 1)
                os.fchmod(descriptor, _OWNER_ONLY)
                if not whole:
                    kept._append([first])
                    flush_directory(path.absolute().parent)
            yield kept

    def plan(self, answers: Iterable[PreparedSubmission]) -> None:
        """Add sentinels, as they will be sent, and flush them."""
        new = [PlantedSentinel(answer.envelope, b"".join(answer.leaves)) for answer in answers]
        lines = [
            _line(
                {
                    "sentinel": number,
                    "envelope_hash": envelope_hash(sentinel.envelope).hex(),
                    "leaves": [leaf.hex() for leaf in split(sentinel.leaves)],
                    "envelope": sentinel.envelope.hex(),
                }
            )
            for number, sentinel in enumerate(new, start=len(self.sentinels))
        ]
        with _failures(self._path):
            self._append(lines)
        self.sentinels.extend(new)

    def record(
        self, number: int, state: SentinelState, *, receipt: bytes = b"", reason: str = ""
    ) -> None:
        """Set the state of a sentinel, and flush it."""
        fields: dict[str, object] = {"sentinel": number, "state": state}
        if receipt:
            fields["receipt"] = receipt.hex()
        if reason:
            fields["reason"] = reason
        with _failures(self._path):
            self._append([_line(fields)])
        _apply(self.sentinels[number], state, receipt, reason)

    def _read(self, line: bytes, number: int, most: int) -> None:
        """
        Read any line but the first.

        Raises:
            SettingsError: It is damaged; names its number.
        """
        try:
            fields = json.loads(line)
            place = fields["sentinel"]
            if "state" not in fields:
                if place != len(self.sentinels) or place >= most:
                    raise ValueError("a sentinel out of turn")
                self.sentinels.append(_planned(fields))
                return
            if not 0 <= place < len(self.sentinels):
                raise ValueError("no such sentinel")
            receipt, reason = bytes.fromhex(fields.get("receipt", "")), fields.get("reason", "")
            if len(receipt) not in {0, SIGNATURE_BYTES} or not isinstance(reason, str):
                raise ValueError("no receipt, or no reason")
            _apply(self.sentinels[place], SentinelState(fields["state"]), receipt, reason)
        except _INVALID as error:
            raise SettingsError(f"line {number} of {self._path} is damaged") from error

    def _append(self, lines: Iterable[bytes]) -> None:
        left = memoryview(b"".join(lines))
        while left:
            left = left[self._file.write(left) :]
        os.fsync(self._file.fileno())


def _planned(fields: Any) -> PlantedSentinel:  # noqa: ANN401  # JSON
    envelope = bytes.fromhex(fields["envelope"])
    leaves = [bytes.fromhex(leaf) for leaf in fields["leaves"]]
    if not leaves or any(len(leaf) != HASH_BYTES for leaf in leaves):
        raise ValueError("no leaves")
    return PlantedSentinel(envelope, b"".join(leaves))


def _apply(sentinel: PlantedSentinel, state: SentinelState, receipt: bytes, reason: str) -> None:
    sentinel.state = state
    sentinel.receipt = receipt or sentinel.receipt
    sentinel.reason = reason


def _line(fields: dict[str, object]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _check_first(line: bytes, digest: TaskDigest, count: int, path: Path) -> None:
    try:
        fields = json.loads(line)
        found, sentinels = fields["task_digest"], fields["sentinels"]
    except _INVALID as error:
        raise _not_sentinels(path) from error
    if not (isinstance(found, str) and isinstance(sentinels, int)):
        raise _not_sentinels(path)
    if found != digest.hex():
        raise SettingsError(f"{path} holds sentinels of another task")
    if sentinels != count:
        raise SettingsError(
            f"{path} is of {sentinels} sentinels, and {count} were asked for: ask for as many to "
            "go on with them, or name another file"
        )


def _not_sentinels(path: Path) -> SettingsError:
    return SettingsError(f"{path} is there already, and holds no sentinels")


@contextmanager
def _failures(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from error
