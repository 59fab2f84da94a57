"""Blocks in an S3-compatible object store, which behave as in a folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from common.crypto.batch_key import BatchKey
from common.errors import DamagedStorageError, StorageError
from common.runtime.blocks import Blocks, SealedBlocks, open_blocks
from tests.support.object_stores import object_store

_CONTENT: Final = bytes(range(256)) * 300


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


@pytest.mark.parametrize("damage", ["missing", "moved", "of another batch", "changed", "cut off"])
def test_a_damaged_block_does_not_open(blocks: Blocks, damage: str) -> None:
    """A sealed block opens only whole, at its own place and under its own key."""
    sealed = SealedBlocks(blocks, "batch", BatchKey(bytes(32)))
    for name in ("stage/one", "stage/two"):
        sealed.put(name, memoryview(_CONTENT))
        assert _CONTENT == sealed.get(name)
    stored = blocks.get("batch/stage/one")
    other = SealedBlocks(blocks, "batch", BatchKey(bytes([1] * 32)))
    match damage:
        case "missing":
            sealed.delete("stage")
        case "moved":
            blocks.put("batch/stage/two", stored, durable=False)
        case "of another batch":
            other.put("stage/two", _CONTENT)
        case "changed":
            whole = blocks.get("batch/stage/two")
            flipped = whole[:-1] + bytes([whole[-1] ^ 1])
            blocks.put("batch/stage/two", flipped, durable=False)
        case "cut off":
            blocks.put("batch/stage/two", stored[:10], durable=False)

    assert _CONTENT[:50] not in stored
    with pytest.raises(DamagedStorageError):
        sealed.get("stage/two")


@pytest.mark.slow
def test_an_object_store_that_is_away_is_a_storage_error() -> None:
    """Its server has stopped; the client tries for seconds."""
    with object_store() as url:
        blocks = open_blocks(url)
        blocks.put("batch/one", b"a block", durable=True)
    with pytest.raises(StorageError, match="does not answer, or refuses"):
        blocks.get("batch/one")
