import os
from pathlib import Path

import pytest

from common.crypto.batch_key import BatchKey
from common.errors import DamagedStorageError
from common.runtime.blocks import FolderBlocks, SealedBlocks
from tests.support.disks import flushes

_KEY = BatchKey(bytes(32))


def _sealed(path: Path, folder: str = "b") -> SealedBlocks:
    return SealedBlocks(FolderBlocks(path), folder, _KEY)


def test_a_block_is_read_back_whole_or_in_part(tmp_path: Path) -> None:
    """A later block takes an earlier one's place; sealed blocks are read whole."""
    blocks = FolderBlocks(tmp_path)
    for content in (b"earlier and longer", b"0123456789"):
        blocks.put("folder/name", content, durable=False)

    assert b"0123456789" == blocks.get("folder/name")
    assert b"345" == blocks.get("folder/name", 3, 3)
    assert b"89" == blocks.get("folder/name", 8, 30)
    _sealed(tmp_path).put("stage/0", b"content", durable=True)
    assert b"content" == _sealed(tmp_path).get("stage/0")
    assert ["b", "folder"] == blocks.folders()


def test_a_folder_is_deleted_with_its_blocks(tmp_path: Path) -> None:
    """Also a subfolder alone; deleting twice changes nothing."""
    blocks = _sealed(tmp_path)
    for name in ("kept/0", "gone/0", "gone/1"):
        blocks.put(name, b"content")
    for _ in range(2):
        blocks.delete("gone")
    assert ["kept"] == [path.name for path in (tmp_path / "b").iterdir()]
    for _ in range(2):
        FolderBlocks(tmp_path).delete("b")
    assert [] == FolderBlocks(tmp_path).folders() == FolderBlocks(tmp_path / "none").folders()


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
