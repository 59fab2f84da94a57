"""
Storage of blocks: byte strings that are written whole, by name, in folders.

The parts of a batch exchange their data through blocks, on one machine as on many. A block is
sealed under its batch's key before a store sees it, bound to its folder and name: a moved, swapped
or changed block does not open, and destroying the key erases all of them.
"""

import re
import secrets
import shutil
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote, urlsplit

from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.errors import DamagedStorageError, SettingsError, StorageError
from shuffledp.common.messages.batch import BATCH_ID_BYTES, BatchId
from shuffledp.common.runtime.database import storage_failures
from shuffledp.common.runtime.state_directory import StateDirectory, atomic_write, flush_directory

if TYPE_CHECKING:  # optional
    from pyarrow.fs import FileSystem

_OWNER_ONLY_FOLDER: Final = 0o700
_OWNER_ONLY_FILE: Final = 0o600
_MISSING: Final = "a block of the batch is missing"
_STORES_HELD: Final = 4
KEY_FILES: Final = "batch-*.key"
"""Names of batches' key files in a state directory."""
BATCH_FOLDERS: Final = re.compile(f"[0-9a-f]{{{2 * BATCH_ID_BYTES}}}")
"""Names of batches' folders: their ids in hexadecimal."""


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
class FolderBlocks(Blocks):
    """Blocks in a directory of this machine, or one that several machines mount."""

    path: Path

    @storage_failures()
    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        path = self.path / name
        _make_folder(path.parent)
        if durable:
            atomic_write(path, content, _OWNER_ONLY_FILE)
            return
        scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        scratch.write_bytes(content)
        scratch.replace(path)

    @storage_failures()
    def get(self, name: str, start: int = 0, length: int = -1) -> bytes:
        try:
            with (self.path / name).open("rb") as file:
                file.seek(start)
                return file.read(length)
        except FileNotFoundError as error:
            raise DamagedStorageError(_MISSING) from error

    @storage_failures()
    def delete(self, folder: str) -> None:
        path = self.path / folder
        if path.exists():
            shutil.rmtree(path)
            flush_directory(path.parent)

    @storage_failures()
    def folders(self) -> list[str]:
        return sorted(path.name for path in self.path.glob("*") if path.is_dir())


def _make_folder(path: Path) -> None:
    """Make a folder and its parents durably, readable by the owner alone."""
    if path.exists():
        return
    _make_folder(path.parent)
    path.mkdir(mode=_OWNER_ONLY_FOLDER, exist_ok=True)
    flush_directory(path.parent)


class ObjectBlocks(Blocks):
    """Blocks in an S3-compatible object store."""

    def __init__(self, url: str) -> None:
        """Open s3://BUCKET/PREFIX; see `open_blocks`."""
        self._url = url
        _object_store(url)

    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        """Write a block whole; object stores acknowledge only durable ones."""
        store, root = _object_store(self._url)
        with _store_failures(), store.open_output_stream(f"{root}/{name}") as stream:
            stream.write(content)

    def get(self, name: str, start: int = 0, length: int = -1) -> bytes:
        store, root = _object_store(self._url)
        with _store_failures(), store.open_input_file(f"{root}/{name}") as file:
            file.seek(start)
            content: bytes = file.read(None if length < 0 else length)
            return content

    def delete(self, folder: str) -> None:
        store, root = _object_store(self._url)
        with _store_failures(), suppress(FileNotFoundError):
            store.delete_dir(f"{root}/{folder}")

    def folders(self) -> list[str]:
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415  # optional

        store, root = _object_store(self._url)
        with _store_failures():
            found = store.get_file_info(FileSelector(root, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == FileType.Directory)


@lru_cache(maxsize=_STORES_HELD)
def _object_store(url: str) -> "tuple[FileSystem, str]":
    """Return an object store's client and root: a few are kept, each with its connections."""
    try:
        from pyarrow.fs import FileSystem  # noqa: PLC0415  # optional
    except ImportError as error:
        raise SettingsError(
            "blocks in an object store need pyarrow: install shuffledp[scale]"
        ) from error
    try:
        with _store_failures():
            store, root = FileSystem.from_uri(url)
            return store, root
    except ValueError as error:
        raise SettingsError("blocks must be file:///PATH or s3://BUCKET/PREFIX") from error


@contextmanager
def _store_failures() -> Generator[None]:
    """Convert the object store's failures to StorageError."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedStorageError(_MISSING) from error
    except OSError as error:
        raise StorageError("the object store of the blocks fails or does not answer") from error


def open_blocks(url: str) -> Blocks:
    """
    Open the store at file:///PATH or s3://BUCKET/PREFIX.

    Credentials come from the environment, as for Amazon's own clients. For a store elsewhere, the
    URL ends in ?endpoint_override=HOST:PORT, and &scheme=http without TLS.

    Raises SettingsError if the URL has another form, or pyarrow is not installed; StorageError if
    the object store does not answer.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3" and parts.netloc:
        return ObjectBlocks(url)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        return FolderBlocks(Path(unquote(parts.path)))
    raise SettingsError("blocks must be file:///PATH or s3://BUCKET/PREFIX")


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


class StagedBlocks:
    """
    The blocks of delivered batches, each sealed under a staging key until its batch's release.

    Keys are created in one thread: of two that create one, the second would replace the first's.
    """

    def __init__(self, state: StateDirectory, blocks: Blocks) -> None:
        self._state = state
        self.blocks = blocks

    def key(self, batch_id: BatchId) -> BatchKey:
        """Return a batch's staging key, created at the first call."""
        return BatchKey(self._state.secret(key_file(batch_id), BatchKey.generate))

    def open(self, batch_id: BatchId) -> SealedBlocks:
        """Open a batch's blocks."""
        return SealedBlocks(self.blocks, batch_id.hex(), self.key(batch_id))

    def erase(self, batch_id: BatchId) -> None:
        """Destroy a batch's staging key, then delete its blocks. Idempotent."""
        self._state.destroy(key_file(batch_id))
        self.blocks.delete(batch_id.hex())

    def sweep(self, kept: Collection[BatchId]) -> None:
        """Erase every batch that is not in `kept`. Run at start."""
        key_files = {key_file(batch_id) for batch_id in kept}
        for name in self._state.names(KEY_FILES):
            if name not in key_files:
                self._state.destroy(name)
        folders = {batch_id.hex() for batch_id in kept}
        for folder in self.blocks.folders():
            if folder not in folders and BATCH_FOLDERS.fullmatch(folder):
                self.blocks.delete(folder)


def key_file(batch_id: BatchId) -> str:
    """Return the name of a batch's key file in the state directory."""
    return KEY_FILES.replace("*", batch_id.hex())
