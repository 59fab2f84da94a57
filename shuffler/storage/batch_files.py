"""
The files of one batch, sealed under its key: buckets during the shuffle, then the permuted batch.

A file is a sequence of sealed records, each bound to its file and position, so that moving or
omitting one is detected; the reader knows the total number of reports. The permuted batch is
written, flushed, renamed and its directory flushed, so that it exists whole or not at all. Only
then does the spool record that the batch is permuted; earlier files are discarded when the batch is
shuffled again.
"""

import itertools
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from common.errors import DamagedStorageError
from common.runtime.database import storage_failures
from common.runtime.state_directory import flush_directory
from shuffler.storage.group import BatchKey

_PERMUTED: Final = "permuted"
_UNFINISHED: Final = "permuted.part"
_LENGTH_BYTES: Final = 4
_OWNER_ONLY: Final = 0o700
_MAX_RECORD_BYTES: Final = 2**28
"""More than any record that is written."""


class BatchFiles:
    """
    One batch's directory.

    Every method raises StorageError if the disk is full, read-only or fails, and
    DamagedStorageError if it returns other bytes than were written.
    """

    def __init__(self, folder: Path, key: BatchKey) -> None:
        self._folder = folder
        self._key = key
        self._written: dict[int, int] = {}
        """Number of records in each bucket."""

    @storage_failures()
    def begin(self) -> None:
        """Make an empty directory, discarding any earlier attempt."""
        remove_folder(self._folder)
        self._written = {}
        self._folder.mkdir(mode=_OWNER_ONLY, parents=True)

    @storage_failures()
    def append(self, bucket: int, reports: bytes) -> None:
        """Append a record to a bucket. Not flushed: buckets need not survive a crash."""
        number = self._written.get(bucket, 0)
        with self._bucket(bucket).open("ab") as file:
            _write(file, self._key.seal(reports, _place(bucket, number)))
        self._written[bucket] = number + 1

    @storage_failures()
    def take(self, bucket: int) -> list[bytes]:
        """Return a bucket's records, and remove the bucket."""
        if bucket not in self._written:
            return []
        path = self._bucket(bucket)
        with path.open("rb") as file:
            records = [
                self._key.open(sealed, _place(bucket, number))
                for number, sealed in enumerate(_sealed_records(file))
            ]
        if len(records) != self._written.pop(bucket):
            raise DamagedStorageError("a bucket of the batch has lost records")
        path.unlink()
        return records

    def _bucket(self, bucket: int) -> Path:
        return self._folder / f"bucket-{bucket}"

    @storage_failures()
    def save(self, chunks: Iterable[bytes]) -> None:
        """Write the permuted batch durably."""
        unfinished = self._folder / _UNFINISHED
        with unfinished.open("wb") as file:
            for number, chunk in enumerate(chunks):
                _write(file, self._key.seal(chunk, _place(-1, number)))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._folder / _PERMUTED)
        flush_directory(self._folder)
        flush_directory(self._folder.parent)

    def saved(self) -> Iterator[bytes]:
        """
        Yield the permuted batch, chunk by chunk; may be read several times.

        The file is open only while a chunk is read, so the reader may stop anywhere.
        """
        start = 0
        for number in itertools.count():
            with storage_failures(), (self._folder / _PERMUTED).open("rb") as file:
                file.seek(start)
                sealed = next(_sealed_records(file), None)
                start = file.tell()
            if sealed is None:
                return
            yield self._key.open(sealed, _place(-1, number))


def remove_folder(folder: Path) -> None:
    """Remove a batch's directory, if there is one."""
    with storage_failures():
        if folder.exists():
            shutil.rmtree(folder)
            flush_directory(folder.parent)


def sweep_folders(folders: Path, kept: Collection[str]) -> None:
    """Remove the directories of batches not in `kept`, and unfinished files of those that are."""
    with storage_failures():
        for folder in sorted(folders.glob("*")):
            if folder.name not in kept:
                remove_folder(folder)
            else:
                for path in folder.glob("*"):
                    if path.name != _PERMUTED:
                        path.unlink()


def _place(bucket: int, number: int) -> bytes:
    """Encode a record's file (-1 is the permuted batch) and position, to be authenticated."""
    return b"file" + bucket.to_bytes(4, "big", signed=True) + number.to_bytes(8, "big")


def _write(file: IO[bytes], sealed: bytes) -> None:
    file.write(len(sealed).to_bytes(_LENGTH_BYTES, "big"))
    file.write(sealed)


def _sealed_records(file: IO[bytes]) -> Iterator[bytes]:
    while header := file.read(_LENGTH_BYTES):
        length = int.from_bytes(header, "big")
        sealed = file.read(min(length, _MAX_RECORD_BYTES))
        if len(sealed) != length:
            raise DamagedStorageError("a file of the batch ends in the middle of a record")
        yield sealed
