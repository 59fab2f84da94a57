"""One batch's directory of files."""

import itertools
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from common.crypto.batch_key import BatchKey
from common.errors import DamagedStorageError
from common.runtime.database import storage_failures
from common.runtime.state_directory import flush_directory
from shuffler.storage.group import record_context, sealed_records, write_record

_PERMUTED: Final = "permuted"
_UNFINISHED: Final = "permuted.part"
_OWNER_ONLY: Final = 0o700


class BatchFiles:
    """
    One batch's directory: buckets during the shuffle, then the permuted batch.

    A file is a sequence of records sealed under the batch's key, each bound to its file and
    position: the reader, who knows the number of reports, detects moved and missing records. The
    permuted batch is written, flushed and renamed, and its directory flushed, so that it exists
    completely or not at all. A repeated shuffle discards earlier files.

    Every method raises StorageError if the disk is full, read-only or failing, and
    DamagedStorageError if stored bytes have changed.
    """

    def __init__(self, folder: Path, key: BatchKey) -> None:
        self._folder = folder
        self._key = key
        self._written: dict[int, int] = {}
        """Number of records in each bucket."""

    @storage_failures()
    def begin(self) -> None:
        """Create an empty directory, discarding any earlier attempt."""
        remove_folder(self._folder)
        self._written = {}
        self._folder.mkdir(mode=_OWNER_ONLY, parents=True)

    @storage_failures()
    def append(self, bucket: int, reports: bytes) -> None:
        """Encrypt and append a record to a bucket, without a flush: a crash may lose buckets."""
        number = self._written.get(bucket, 0)
        with self._bucket(bucket).open("ab") as file:
            write_record(file, self._key.seal(reports, record_context(bucket, number)))
        self._written[bucket] = number + 1

    @storage_failures()
    def take(self, bucket: int) -> list[bytes]:
        """Return a bucket's records, and remove the bucket."""
        if bucket not in self._written:
            return []
        path = self._bucket(bucket)
        with path.open("rb") as file:
            records = [
                self._key.open(sealed, record_context(bucket, number))
                for number, sealed in enumerate(sealed_records(file))
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
                write_record(file, self._key.seal(chunk, record_context(-1, number)))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._folder / _PERMUTED)
        flush_directory(self._folder)
        flush_directory(self._folder.parent)

    def saved(self) -> Iterator[bytes]:
        """
        Yield the permuted batch, chunk by chunk.

        The file is open only while a chunk is read, so the reader may stop at any chunk.
        """
        start = 0
        for number in itertools.count():
            with storage_failures(), (self._folder / _PERMUTED).open("rb") as file:
                file.seek(start)
                sealed = next(sealed_records(file), None)
                start = file.tell()
            if sealed is None:
                return
            yield self._key.open(sealed, record_context(-1, number))


@storage_failures()
def remove_folder(folder: Path) -> None:
    """Remove a batch's directory if it exists."""
    if folder.exists():
        shutil.rmtree(folder)
        flush_directory(folder.parent)


@storage_failures()
def sweep_folders(folders: Path, kept: Collection[str], unknown: Collection[str]) -> None:
    """Remove the directories in neither collection, and the unfinished files of those in `kept`."""
    for folder in sorted(folders.glob("*")):
        if folder.name not in {*kept, *unknown}:
            remove_folder(folder)
        elif folder.name in kept:
            for path in folder.glob("*"):
                if path.name != _PERMUTED:
                    path.unlink()
