"""
Storage of blocks: byte strings that are written whole, by name, in folders.

The parts of a batch exchange their data through blocks, on one machine as on many. A block is
sealed under its batch's key before a store sees it, bound to its folder and name: a moved, swapped
or changed block does not open, and destroying the key erases all of them.
"""

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from common.crypto.batch_key import BatchKey
from common.errors import DamagedStorageError, StorageError
from common.runtime.database import storage_failures
from common.runtime.state_directory import atomic_write, flush_directory

_OWNER_ONLY_FOLDER: Final = 0o700
_OWNER_ONLY_FILE: Final = 0o600


class Blocks(Protocol):
    """A store of blocks, picklable. Names are `folder/name` or `folder/subfolder/name`."""

    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        """Write a block whole, in place of an earlier one; flush it to the disk if `durable`."""

    def get(self, name: str, start: int = 0, length: int = -1) -> bytes:
        """Read `length` bytes of a block, or all; raise DamagedStorageError if it is missing."""

    def delete(self, folder: str) -> None:
        """Delete a folder or subfolder with all its blocks. Idempotent."""

    def folders(self) -> list[str]:
        """List the folders, without subfolders."""


@dataclass(frozen=True, slots=True)
class FolderBlocks:
    """Blocks in a directory."""

    path: Path

    @storage_failures()
    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        """Write a block; see `Blocks.put`."""
        path = self.path / name
        _make_folder(path.parent)
        if durable:
            atomic_write(path, content, _OWNER_ONLY_FILE)
            return
        scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        scratch.write_bytes(content)
        scratch.replace(path)

    def get(self, name: str, start: int = 0, length: int = -1) -> bytes:
        """Read a block; see `Blocks.get`."""
        try:
            with storage_failures(), (self.path / name).open("rb") as file:
                file.seek(start)
                return file.read(length)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise DamagedStorageError("a block of the batch is missing") from error
            raise

    @storage_failures()
    def delete(self, folder: str) -> None:
        """Delete a folder; see `Blocks.delete`."""
        path = self.path / folder
        if path.exists():
            shutil.rmtree(path)
            flush_directory(path.parent)

    @storage_failures()
    def folders(self) -> list[str]:
        """List the folders; see `Blocks.folders`."""
        return sorted(path.name for path in self.path.glob("*") if path.is_dir())


def _make_folder(path: Path) -> None:
    """Make a folder and its parents durably, readable by the owner alone."""
    if path.exists():
        return
    _make_folder(path.parent)
    path.mkdir(mode=_OWNER_ONLY_FOLDER, exist_ok=True)
    flush_directory(path.parent)


class SealedBlocks:
    """The blocks of one batch, sealed under its key."""

    def __init__(self, blocks: Blocks, folder: str, key: BatchKey) -> None:
        self._blocks = blocks
        self._folder = folder
        self._key = key

    def put(self, name: str, content: bytes | memoryview, *, durable: bool = False) -> None:
        """Seal and write a block, in place of an earlier one."""
        whole = f"{self._folder}/{name}"
        self._blocks.put(whole, self._key.seal(content, whole.encode()), durable=durable)

    def get(self, name: str) -> bytes:
        """Read and open a block; raise DamagedStorageError if it is missing or was changed."""
        whole = f"{self._folder}/{name}"
        return self._key.open(self._blocks.get(whole), whole.encode())

    def delete(self, subfolder: str) -> None:
        """Delete the blocks of a subfolder. Idempotent."""
        self._blocks.delete(f"{self._folder}/{subfolder}")
