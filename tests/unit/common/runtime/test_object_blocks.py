"""Blocks in an S3-compatible object store, which behave as in a folder."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from common.errors import DamagedStorageError, SettingsError, StorageError
from common.runtime.blocks import Blocks, open_blocks

pytest.importorskip("moto")
pytest.importorskip("pyarrow")
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
