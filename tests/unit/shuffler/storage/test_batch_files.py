import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import DamagedStorageError, StorageError
from shuffler.storage.group import BatchKey
from shuffler.storage.spool import BatchFiles, remove_folder, sweep_folders
from tests.support.disks import flushes

_KEY = BatchKey(bytes(32))
_CHUNKS = [bytes([number]) * 100 for number in range(50)]


def _files(path: Path) -> BatchFiles:
    files = BatchFiles(path / "batches" / "b", _KEY)
    files.begin()
    return files


def test_a_saved_batch_can_be_read_repeatedly(tmp_path: Path) -> None:
    """Also by another process that has the directory and the key."""
    _files(tmp_path).save(_CHUNKS)
    other = BatchFiles(tmp_path / "batches" / "b", _KEY)

    assert _CHUNKS == list(other.saved()) == list(other.saved())


def test_a_permuted_batch_is_flushed_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then both directories are flushed."""
    files = _files(tmp_path)
    with flushes(monkeypatch) as seen:
        files.save(_CHUNKS)
    order = (tmp_path / "batches" / "b" / "permuted").stat()
    folders = [path.stat().st_ino for path in (tmp_path / "batches" / "b", tmp_path / "batches")]

    assert [("flush", order.st_ino, order.st_size), ("rename", order.st_ino, order.st_size)] == (
        seen[:2]
    )
    assert folders == [number for act, number, _ in seen[2:] if act == "flush"]


def test_a_bucket_returns_its_records_once(tmp_path: Path) -> None:
    """In the order in which they were added; then the file is removed."""
    files = _files(tmp_path)
    for number, chunk in enumerate(_CHUNKS):
        files.append(number % 3, chunk)

    assert [_CHUNKS[bucket::3] for bucket in range(3)] == [files.take(n) for n in range(3)]
    assert [] == files.take(0) == files.take(7)
    assert [] == list((tmp_path / "batches" / "b").iterdir())


def test_files_are_encrypted_and_private(tmp_path: Path) -> None:
    """Buckets and the permuted batch are sealed; the directory has mode 0700."""
    files = _files(tmp_path)
    files.append(1, b"a sealed report" * 10)
    files.save([b"a sealed report" * 10])
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    assert len(written) > 2 * 150
    assert b"a sealed report" not in written
    assert 0o700 == (tmp_path / "batches" / "b").stat().st_mode & 0o777


def test_a_permuted_batch_exists_whole_or_not_at_all(tmp_path: Path) -> None:
    """A crash while writing leaves none, and `begin` removes the remains."""
    files = _files(tmp_path)

    def crash() -> Iterator[bytes]:
        yield from _CHUNKS
        raise RuntimeError

    with pytest.raises(RuntimeError):
        files.save(crash())
    with pytest.raises(StorageError):
        list(files.saved())
    files.append(2, b"left over")
    files.begin()
    assert [] == list((tmp_path / "batches" / "b").iterdir())
    files.save(_CHUNKS)
    assert _CHUNKS == list(files.saved())


def _flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("place", [0, 3, 4, 20, 128, 3000, -1])
def test_a_changed_byte_is_detected(tmp_path: Path, place: int) -> None:
    """In a length, a nonce, a ciphertext or a tag, of both kinds of file."""
    files = _files(tmp_path)
    files.save(_CHUNKS)
    for chunk in _CHUNKS:
        files.append(1, chunk)
    folder = tmp_path / "batches" / "b"
    _flip(folder / "permuted", place)
    _flip(folder / "bucket-1", place)

    with pytest.raises(DamagedStorageError):
        list(files.saved())
    with pytest.raises(DamagedStorageError):
        files.take(1)


def test_a_bucket_truncated_between_records_is_detected(tmp_path: Path) -> None:
    """Although every record that is left opens."""
    files = _files(tmp_path)
    for chunk in _CHUNKS:
        files.append(1, chunk)
    path = tmp_path / "batches" / "b" / "bucket-1"
    os.truncate(path, path.stat().st_size // len(_CHUNKS) * 10)

    with pytest.raises(DamagedStorageError, match="lost records"):
        files.take(1)


def test_a_sweep_keeps_only_the_permuted_batches_that_are_needed(tmp_path: Path) -> None:
    """Buckets, unfinished files and other directories are removed."""
    folders = tmp_path / "batches"
    for name in ("kept", "gone"):
        files = BatchFiles(folders / name, _KEY)
        files.begin()
        files.append(1, b"bucket")
        files.save(_CHUNKS)
        (folders / name / "permuted.part").write_bytes(b"unfinished")
    sweep_folders(folders, {"kept"})
    sweep_folders(tmp_path / "none", set())

    assert ["kept"] == [path.name for path in folders.iterdir()]
    assert ["permuted"] == [path.name for path in (folders / "kept").iterdir()]
    remove_folder(folders / "kept")
    remove_folder(folders / "kept")
    assert [] == list(folders.iterdir())
