"""
The files of one batch: buckets while it is permuted, then its order, all sealed under its key.

A file is a row of sealed records, each bound to its file and its place in it, so that none can be
moved or left out unseen; the reader knows how many reports there are in all. The order appears
under its name whole or not at all: written, flushed, renamed, the folder flushed. Only then does
the spool record that the batch is permuted; before that, whatever lies in the folder means nothing
and is removed when the batch is permuted again.
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
from shuffler.storage.batch_key import BatchKey

_ORDER: Final = "permuted"
_UNFINISHED: Final = "permuted.part"
_LENGTH_BYTES: Final = 4
_OWNER_ONLY: Final = 0o700
_LONGEST_RECORD: Final = 2**28
"""Bytes; a longer one was never written."""


class BatchFiles:
    """
    One batch's folder.

    Every method raises StorageError if the disk is full, read-only or fails, and
    DamagedStorageError if it gives back something else than what was written.
    """

    def __init__(self, folder: Path, key: BatchKey) -> None:
        self._folder = folder
        self._key = key
        self._written: dict[int, int] = {}
        """Records of each bucket."""

    @storage_failures()
    def begin(self) -> None:
        """Make an empty folder; nothing is left of what an earlier attempt had drawn."""
        remove_folder(self._folder)
        self._written = {}
        self._folder.mkdir(mode=_OWNER_ONLY, parents=True)

    # --- buckets ----------------------------------------------------------------------------------

    @storage_failures()
    def append(self, bucket: int, reports: bytes) -> None:
        """Add a record to a bucket. A bucket need not outlive a crash: nothing is flushed."""
        number = self._written.get(bucket, 0)
        with self._bucket(bucket).open("ab") as file:
            _write(file, self._key.seal(reports, _place(bucket, number)))
        self._written[bucket] = number + 1

    @storage_failures()
    def take(self, bucket: int) -> list[bytes]:
        """Read a bucket's records, and remove it."""
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

    # --- the order --------------------------------------------------------------------------------

    @storage_failures()
    def save(self, chunks: Iterable[bytes]) -> None:
        """Write the permuted batch; when this returns it is on the disk, whole."""
        unfinished = self._folder / _UNFINISHED
        with unfinished.open("wb") as file:
            for number, chunk in enumerate(chunks):
                _write(file, self._key.seal(chunk, _place(-1, number)))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._folder / _ORDER)
        flush_directory(self._folder)
        flush_directory(self._folder.parent)

    def saved(self) -> Iterator[bytes]:
        """
        Read the permuted batch, chunk by chunk, as often as it is wanted.

        The file is open while a chunk is read and at no other time: whoever reads may stop
        anywhere, and leaves nothing open.
        """
        start = 0
        for number in itertools.count():
            with storage_failures(), (self._folder / _ORDER).open("rb") as file:
                file.seek(start)
                sealed = next(_sealed_records(file), None)
                start = file.tell()
            if sealed is None:
                return
            yield self._key.open(sealed, _place(-1, number))


def remove_folder(folder: Path) -> None:
    """Remove a batch's folder, if there is one."""
    with storage_failures():
        if folder.exists():
            shutil.rmtree(folder)
            flush_directory(folder.parent)


def sweep_folders(folders: Path, kept: Collection[str]) -> None:
    """Remove the folders of all batches but some, and of those what is not their order."""
    with storage_failures():
        for folder in sorted(folders.glob("*")):
            if folder.name not in kept:
                remove_folder(folder)
            else:
                for path in folder.glob("*"):
                    if path.name != _ORDER:
                        path.unlink()


def _place(bucket: int, number: int) -> bytes:
    """Name a record's place: its file (-1 is the order) and its number in it."""
    return b"file" + bucket.to_bytes(4, "big", signed=True) + number.to_bytes(8, "big")


def _write(file: IO[bytes], sealed: bytes) -> None:
    file.write(len(sealed).to_bytes(_LENGTH_BYTES, "big"))
    file.write(sealed)


def _sealed_records(file: IO[bytes]) -> Iterator[bytes]:
    while header := file.read(_LENGTH_BYTES):
        length = int.from_bytes(header, "big")
        sealed = file.read(min(length, _LONGEST_RECORD))
        if len(sealed) != length:
            raise DamagedStorageError("a file of the batch ends in the middle of a record")
        yield sealed
