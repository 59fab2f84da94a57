"""Blocks in a folder and in an S3-compatible object store, which behave alike."""

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.errors import DamagedStorageError, SettingsError, StorageError
from shuffledp.common.runtime.blocks import Blocks, FolderBlocks, SealedBlocks, open_blocks
from tests.support.disks import flushes
from tests.support.object_stores import object_store

_KEY: Final = BatchKey(bytes(32))
_CONTENT: Final = bytes(range(256)) * 300


def _sealed(path: Path, folder: str = "b") -> SealedBlocks:
    return SealedBlocks(FolderBlocks(path), folder, _KEY)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Yield the address of a server's bucket."""
    with object_store() as url:
        yield url


@pytest.fixture(params=["file", "s3"])
def blocks(request: pytest.FixtureRequest, tmp_path: Path) -> Blocks:
    """Return an empty store: a folder, or a prefix of the bucket for each test."""
    if request.param == "file":
        return open_blocks(tmp_path.as_uri())
    address: str = request.getfixturevalue("address")
    return open_blocks(address.replace("bucket", f"bucket/{tmp_path.name}", 1))


def test_blocks_are_replaced_whole_and_deleted_by_folder(blocks: Blocks) -> None:
    """A subfolder is deleted alone, and again without effect."""
    assert [] == blocks.folders()
    for name in ("a/one", "a/sub/two", "a/sub/three", "b/one"):
        blocks.put(name, b"an earlier block", durable=False)
        blocks.put(name, name.encode() + _CONTENT, durable=name.endswith("one"))

    assert b"a/sub/two" + _CONTENT == blocks.get("a/sub/two")
    assert _CONTENT[:1000] == blocks.get("a/one", 5, 1000)
    assert _CONTENT[-5:] == blocks.get("b/one", len(_CONTENT))
    assert ["a", "b"] == blocks.folders()
    for _ in range(2):
        blocks.delete("a/sub")
    for gone in ("a/sub/two", "a/sub/three", "c/never"):
        with pytest.raises(DamagedStorageError, match="missing"):
            blocks.get(gone)
    assert b"a/one" == blocks.get("a/one", 0, 5)
    blocks.delete("a")
    with pytest.raises(DamagedStorageError, match="missing"):
        blocks.get("a/one")
    assert ["b"] == blocks.folders()


def test_a_worker_opens_the_same_blocks(address: str) -> None:
    """Jobs hold their blocks, and are pickled."""
    blocks = open_blocks(address)
    blocks.put("pickled/one", b"a block", durable=False)

    assert b"a block" == pickle.loads(pickle.dumps(blocks)).get("pickled/one")  # noqa: S301  # our own


@pytest.mark.parametrize(
    "url", ["/folder", "file:folder", "file://host/folder", "s3:///key", "s3://b?no=1", "gs://b/p"]
)
def test_other_urls_are_refused(url: str) -> None:
    """The message names both forms."""
    with pytest.raises(SettingsError, match="file:///PATH or s3://BUCKET/PREFIX"):
        open_blocks(url)


@pytest.mark.slow
def test_an_object_store_that_is_away_is_a_storage_error() -> None:
    """Its server has stopped; the client tries for seconds."""
    with object_store() as url:
        blocks = open_blocks(url)
        blocks.put("batch/one", b"a block", durable=True)
    with pytest.raises(StorageError, match="fails or does not answer"):
        blocks.get("batch/one")


def test_a_sealed_block_is_read_back_whole(tmp_path: Path) -> None:
    """By the same key, folder and name; its folder is deleted like every other one."""
    blocks = _sealed(tmp_path)
    for name in ("kept/0", "gone/0"):
        blocks.put(name, b"content", durable=True)
    blocks.delete("gone")

    assert b"content" == _sealed(tmp_path).get("kept/0")
    assert ["kept"] == [path.name for path in (tmp_path / "b").iterdir()]
    assert [] == FolderBlocks(tmp_path / "none").folders()


@pytest.mark.parametrize("damage", ["moved", "of another batch", "flipped", "cut off", "missing"])
def test_a_damaged_block_does_not_open(tmp_path: Path, damage: str) -> None:
    """A block is bound to its batch's key, its folder and its name."""
    _sealed(tmp_path).put("stage/0", b"content")
    _sealed(tmp_path, "c").put("stage/0", b"content")
    path = tmp_path / "b" / "stage" / "0"
    content = path.read_bytes()
    name = "stage/1" if damage == "moved" else "stage/0"
    if damage == "moved":
        path.rename(path.with_name("1"))
    elif damage == "of another batch":
        path.write_bytes((tmp_path / "c" / "stage" / "0").read_bytes())
    elif damage == "flipped":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "cut off":
        os.truncate(path, 5)
    else:
        path.unlink()

    with pytest.raises(DamagedStorageError):
        _sealed(tmp_path).get(name)


def test_blocks_on_the_disk_are_encrypted_and_private(tmp_path: Path) -> None:
    """Folders have mode 0700."""
    _sealed(tmp_path).put("stage/0", b"a sealed report" * 10)
    written = (tmp_path / "b" / "stage" / "0").read_bytes()

    assert len(written) > 150
    assert b"a sealed report" not in written
    for folder in ("b", "b/stage"):
        assert 0o700 == (tmp_path / folder).stat().st_mode & 0o777


@pytest.mark.parametrize("durable", [False, True])
def test_a_durable_block_is_flushed_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, durable: bool
) -> None:
    """Then its folder is flushed. A block that can be computed again costs no flush."""
    _sealed(tmp_path).put("stage/1", b"other")
    with flushes(monkeypatch) as seen:
        _sealed(tmp_path).put("stage/0", b"content", durable=durable)
    file = (tmp_path / "b" / "stage" / "0").stat()
    folder = (tmp_path / "b" / "stage").stat().st_ino
    acts = [(act, number) for act, number, _ in seen]

    assert ("flush", file.st_ino) in acts if durable else acts == [("rename", file.st_ino)]
    if durable:
        assert [("flush", file.st_ino), ("rename", file.st_ino), ("flush", folder)] == acts
