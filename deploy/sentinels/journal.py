"""
An operator's file of sentinels: an append-only log of JSON lines, each flushed to the disk.

The first line names the task and the number of sentinels. Then comes a line for each, with the
bytes to send, before any is registered; and a line for each change of state. A partial last line
is dropped. The file distinguishes sentinels from users: keep it secret.
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

from common.crypto.merkle import HASH_BYTES
from common.crypto.signing import SIGNATURE_BYTES, envelope_hash
from common.errors import SettingsError
from common.runtime.state_directory import flush_directory
from common.task_digest import TaskDigest
from user_agent.contribution import PreparedSubmission

_OWNER_ONLY: Final = 0o600
_NO_SENTINELS: Final = "exists already, and holds no sentinels"


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


class _Line(BaseModel):
    """A line of the file; bytes are hexadecimal digits."""

    model_config = ConfigDict(strict=True, val_json_bytes="hex", ser_json_bytes="hex")

    def encoded(self) -> bytes:
        return json.dumps(self.model_dump(mode="json", exclude_defaults=True)).encode() + b"\n"


class _Header(_Line):
    task_digest: bytes
    sentinels: int


class _Planned(_Line):
    sentinel: int
    envelope_hash: bytes
    leaves: Annotated[
        list[Annotated[bytes, Field(min_length=HASH_BYTES, max_length=HASH_BYTES)]],
        Field(min_length=1),
    ]
    envelope: bytes

    def planted(self) -> PlantedSentinel:
        return PlantedSentinel(self.envelope, b"".join(self.leaves))


class _Change(_Line):
    sentinel: Annotated[int, Field(ge=0)]
    state: SentinelState
    receipt: Annotated[bytes, Field(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)] = b""
    reason: str = ""


_LINES: Final = TypeAdapter[_Planned | _Change](_Planned | _Change)


class SentinelFile:
    """The sentinels of one task, as they are on the disk."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self.sentinels: list[PlantedSentinel] = []

    @classmethod
    @contextmanager
    def opened(cls, path: Path, digest: TaskDigest, count: int) -> Generator[Self]:
        """
        Create a file that only its owner reads, or continue an existing one, for `count` sentinels.

        Raises:
            SettingsError: The file cannot be written, is held by another process, is of another
                task or number of sentinels, or is something else; it is left unchanged.
        """
        with ExitStack() as stack:
            with _failures(path):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _OWNER_ONLY)
                file = stack.enter_context(os.fdopen(descriptor, "r+b", buffering=0))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise SettingsError(f"{path} is in use by another process") from None
                raw = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                kept, header = cls(file, path), _Header(task_digest=digest, sentinels=count)
                lines = raw.split(b"\n")[:-1]
                if lines:
                    kept._read(lines, header)
                elif not header.encoded().startswith(raw):
                    raise SettingsError(f"{path} {_NO_SENTINELS}")
                file.truncate(raw.rfind(b"\n") + 1)
                os.fchmod(descriptor, _OWNER_ONLY)
                if not lines:
                    kept._append([header])
                    flush_directory(path.absolute().parent)
            yield kept

    def plan(self, answers: Iterable[PreparedSubmission]) -> None:
        """Add sentinels, as they will be sent, and flush them."""
        lines = [
            _Planned(
                sentinel=number,
                envelope_hash=envelope_hash(answer.envelope),
                leaves=list(answer.leaves),
                envelope=answer.envelope,
            )
            for number, answer in enumerate(answers, start=len(self.sentinels))
        ]
        self._append(lines)
        self.sentinels += [line.planted() for line in lines]

    def record(
        self, number: int, state: SentinelState, *, receipt: bytes = b"", reason: str = ""
    ) -> None:
        """Set the state of a sentinel, and flush it."""
        change = _Change(sentinel=number, state=state, reason=reason)
        change.receipt = receipt
        self._append([change])
        self._apply(change)

    def _read(self, lines: Sequence[bytes], expected: _Header) -> None:
        """Read whole lines; raise SettingsError with the number of a damaged one."""
        path = self._path
        try:
            header = _Header.model_validate_json(lines[0])
        except ValueError as error:
            raise SettingsError(f"{path} {_NO_SENTINELS}") from error
        if header.task_digest != expected.task_digest:
            raise SettingsError(f"{path} holds sentinels of another task")
        if header.sentinels != expected.sentinels:
            raise SettingsError(
                f"{path} is of {header.sentinels} sentinels, and {expected.sentinels} were asked "
                "for: ask for as many to continue with them, or name another file"
            )
        for number, line in enumerate(lines[1:], start=2):
            try:
                found = _LINES.validate_json(line)
                if isinstance(found, _Change):
                    self._apply(found)
                elif found.sentinel == len(self.sentinels) < expected.sentinels:
                    self.sentinels.append(found.planted())
                else:
                    raise ValueError("a sentinel out of turn")  # noqa: TRY301  # as others
            except (ValueError, IndexError) as error:
                raise SettingsError(f"line {number} of {path} is damaged") from error

    def _apply(self, change: _Change) -> None:
        sentinel = self.sentinels[change.sentinel]
        sentinel.state, sentinel.reason = change.state, change.reason
        sentinel.receipt = change.receipt or sentinel.receipt

    def _append(self, lines: Iterable[_Line]) -> None:
        left = memoryview(b"".join(line.encoded() for line in lines))
        with _failures(self._path):
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())


@contextmanager
def _failures(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from error
