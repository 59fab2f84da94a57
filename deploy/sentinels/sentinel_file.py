"""
An operator's sentinel file: an append-only log of JSON lines, each flushed to disk.

The first line names the task and the number of sentinels. Each has a line with the bytes to send,
before it is registered, and a line per change of state. A partial last line is dropped.
The file distinguishes sentinels from users: keep it secret.
"""

import fcntl
import json
import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from shuffledp.common.crypto.signing import SIGNATURE_BYTES, envelope_hash
from shuffledp.common.errors import SettingsError
from shuffledp.common.messages.inclusion_proof import HASH_BYTES, split
from shuffledp.common.runtime.state_directory import flush_directory
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.terminal.files import writing

_OWNER_ONLY: Final = 0o600
_NOT_A_SENTINEL_FILE: Final = "exists and is not a sentinel file"


class SentinelState(StrEnum):
    """Progress of a sentinel."""

    PLANNED = "planned"
    """Not sent, unless the program stopped while sending it."""
    UNKNOWN = "unknown"
    """Sent but not answered: it may or may not be stored."""
    STORED = "stored"
    """Acknowledged by the shuffler, not yet confirmed at the analyzer."""
    ACKNOWLEDGED = "acknowledged"
    """Acknowledged and confirmed at the analyzer: if the batch lacks it, the shuffler lost it."""
    REFUSED = "refused"


@dataclass(slots=True)
class PlantedSentinel:
    """One test submission and its state."""

    envelope: bytes
    leaves: bytes
    """Leaf hashes of its reports as the analyzer receives them, concatenated."""
    layers: bytes = b""
    """Those of its reports as sent, under a layer each; empty with one shuffler."""
    state: SentinelState = SentinelState.PLANNED
    receipt: bytes = b""
    reason: str = ""
    """The shuffler's reason for refusing the sentinel."""


class _Line(BaseModel):
    """A line of the file; bytes are hexadecimal digits."""

    model_config = ConfigDict(strict=True, val_json_bytes="hex", ser_json_bytes="hex")

    def encoded(self) -> bytes:
        return json.dumps(self.model_dump(mode="json", exclude_defaults=True)).encode() + b"\n"


class _Header(_Line):
    task_digest: bytes
    sentinels: int


_Leaf = Annotated[bytes, Field(min_length=HASH_BYTES, max_length=HASH_BYTES)]


class _Planned(_Line):
    sentinel: int
    envelope_hash: bytes
    leaves: Annotated[list[_Leaf], Field(min_length=1)]
    layers: list[_Leaf] = []
    envelope: bytes

    def sentinel_to_send(self) -> PlantedSentinel:
        return PlantedSentinel(self.envelope, b"".join(self.leaves), b"".join(self.layers))


class _Change(_Line):
    sentinel: Annotated[int, Field(ge=0)]
    state: SentinelState
    receipt: Annotated[bytes, Field(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)] = b""
    reason: str = ""


_LINES: Final = TypeAdapter[_Planned | _Change](_Planned | _Change)


class SentinelFile:
    """An open sentinel file with the sentinels of one task."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self.sentinels: list[PlantedSentinel] = []

    @classmethod
    @contextmanager
    def opened(cls, path: Path, digest: TaskDigest, count: int | None = None) -> Generator[Self]:
        """
        Open a file and lock it; create one of `count` sentinels, unless that is None.

        Raises SettingsError if it does not fit, or cannot be opened.
        """
        with ExitStack() as stack:
            with writing(path):
                create = 0 if count is None else os.O_CREAT
                descriptor = os.open(path, os.O_RDWR | create | os.O_APPEND, _OWNER_ONLY)
                file = stack.enter_context(os.fdopen(descriptor, "r+b", buffering=0))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise SettingsError(f"{path} is in use by another process") from None
                raw = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                log, header = cls(file, path), _Header(task_digest=digest, sentinels=count or 0)
                lines = raw.split(b"\n")[:-1]
                if lines:
                    log._read(lines, header)
                elif count is None or not header.encoded().startswith(raw):
                    raise SettingsError(f"{path} {_NOT_A_SENTINEL_FILE}")
                file.truncate(raw.rfind(b"\n") + 1)
                os.fchmod(descriptor, _OWNER_ONLY)
                if not lines:
                    log._append([header])
                    flush_directory(path.absolute().parent)
            yield log

    def plan(self, sentinels: Iterable[PlantedSentinel]) -> None:
        """Add prepared sentinels, and flush them to disk."""
        lines = [
            _Planned(
                sentinel=number,
                envelope_hash=envelope_hash(planned.envelope),
                leaves=split(planned.leaves),
                layers=split(planned.layers),
                envelope=planned.envelope,
            )
            for number, planned in enumerate(sentinels, start=len(self.sentinels))
        ]
        self._append(lines)
        self.sentinels += [line.sentinel_to_send() for line in lines]

    def record(
        self, number: int, state: SentinelState, *, receipt: bytes = b"", reason: str = ""
    ) -> None:
        """Set the state of a sentinel, and flush it to disk."""
        change = _Change(sentinel=number, state=state, reason=reason)
        change.receipt = receipt
        self._append([change])
        self._apply(change)

    def _read(self, lines: Sequence[bytes], expected: _Header) -> None:
        """Read complete lines; raise SettingsError for another header or a damaged line."""
        path = self._path
        try:
            header = _Header.model_validate_json(lines[0])
        except ValueError as error:
            raise SettingsError(f"{path} {_NOT_A_SENTINEL_FILE}") from error
        if header.task_digest != expected.task_digest:
            raise SettingsError(f"{path} holds sentinels of another task")
        if header.sentinels != (expected.sentinels or header.sentinels):
            raise SettingsError(
                f"{path} has {header.sentinels} sentinels, not {expected.sentinels}: use "
                f"{header.sentinels} to continue with them, or choose another file"
            )
        for number, line in enumerate(lines[1:], start=2):
            try:
                entry = _LINES.validate_json(line)
                if isinstance(entry, _Change):
                    self._apply(entry)
                elif entry.sentinel == len(self.sentinels) < header.sentinels:
                    self.sentinels.append(entry.sentinel_to_send())
                else:
                    raise ValueError("a sentinel out of order")  # noqa: TRY301  # reported like invalid JSON
            except (ValueError, IndexError) as error:
                raise SettingsError(f"line {number} of {path} is damaged") from error

    def _apply(self, change: _Change) -> None:
        sentinel = self.sentinels[change.sentinel]
        sentinel.state, sentinel.reason = change.state, change.reason
        sentinel.receipt = change.receipt or sentinel.receipt

    def _append(self, lines: Iterable[_Line]) -> None:
        left = memoryview(b"".join(line.encoded() for line in lines))
        with writing(self._path):
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
