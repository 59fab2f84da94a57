import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import DamagedStorageError, StorageError
from shuffler.storage.batch_files import BatchFiles, remove_folder, sweep_folders
from shuffler.storage.group import BatchKey
from tests.support.disks import disk_of, flushes

_KEY = BatchKey(bytes(32))
_CHUNKS = [bytes([number]) * 100 for number in range(50)]


def _files(path: Path) -> BatchFiles:
    files = BatchFiles(path / "batches" / "b", _KEY)
    files.begin()
    return files


def test_what_was_saved_is_read_as_often_as_wanted(tmp_path: Path) -> None:
    """Also by another process: the key and the folder are all that it takes."""
    _files(tmp_path).save(_CHUNKS)
    other = BatchFiles(tmp_path / "batches" / "b", _KEY)

    assert _CHUNKS == list(other.saved()) == list(other.saved())


def test_an_order_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole; and then its name is: what a crash leaves under it is the order that was drawn."""
    files = _files(tmp_path)
    with flushes(monkeypatch) as seen:
        files.save(_CHUNKS)
    order = (tmp_path / "batches" / "b" / "permuted").stat()
    folders = [path.stat().st_ino for path in (tmp_path / "batches" / "b", tmp_path / "batches")]

    assert [("flush", order.st_ino, order.st_size), ("rename", order.st_ino, order.st_size)] == (
        seen[:2]
    )
    assert folders == [number for act, number, _ in seen[2:] if act == "flush"]


def test_whoever_stops_reading_leaves_no_file_open(tmp_path: Path) -> None:
    """A delivery that breaks off: not even while what reads is still held by somebody."""
    files = _files(tmp_path)
    files.save(_CHUNKS)
    saved = files.saved()
    assert _CHUNKS[:3] == [next(saved) for _ in range(3)]
    opened = [path.resolve() for path in Path("/proc/self/fd").iterdir()]

    assert (tmp_path / "batches" / "b" / "permuted").resolve() not in opened
    assert _CHUNKS[3:] == list(saved)


def test_a_bucket_gives_back_its_records_once(tmp_path: Path) -> None:
    """In the order in which they were added; then its file is gone."""
    files = _files(tmp_path)
    for number, chunk in enumerate(_CHUNKS):
        files.append(number % 3, chunk)

    assert [_CHUNKS[bucket::3] for bucket in range(3)] == [files.take(n) for n in range(3)]
    assert [] == files.take(0) == files.take(7)
    assert [] == list((tmp_path / "batches" / "b").iterdir())


def test_nothing_readable_is_written(tmp_path: Path) -> None:
    """Buckets and order lie under the batch's key; the folder is the owner's alone."""
    files = _files(tmp_path)
    files.append(1, b"a sealed report" * 10)
    files.save([b"a sealed report" * 10])
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    assert len(written) > 2 * 150
    assert b"a sealed report" not in written
    assert 0o700 == (tmp_path / "batches" / "b").stat().st_mode & 0o777


def test_an_order_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """A crash while it is written leaves no order; beginning again leaves nothing of it."""
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
def test_a_changed_byte_is_never_read_as_a_report(tmp_path: Path, place: int) -> None:
    """In a length, a nonce, a ciphertext or a tag; of the order and of a bucket."""
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


def test_a_bucket_that_lost_its_end_is_not_taken_for_less(tmp_path: Path) -> None:
    """Cut between two records, where every record that is left opens."""
    files = _files(tmp_path)
    for chunk in _CHUNKS:
        files.append(1, chunk)
    path = tmp_path / "batches" / "b" / "bucket-1"
    os.truncate(path, path.stat().st_size // len(_CHUNKS) * 10)

    with pytest.raises(DamagedStorageError, match="lost records"):
        files.take(1)


def test_a_full_disk_refuses_and_work_goes_on_when_space_is_back(tmp_path: Path) -> None:
    """Whether it was a bucket or the order that did not fit."""
    files = _files(tmp_path)
    with disk_of(1000), pytest.raises(StorageError, match="disk of the state directory is full"):
        files.save(_CHUNKS)
    with disk_of(50), pytest.raises(StorageError, match="disk of the state directory is full"):
        files.append(1, _CHUNKS[0])
    files.begin()
    files.save(_CHUNKS)

    assert _CHUNKS == list(files.saved())


def test_a_sweep_leaves_orders_that_count_and_nothing_else(tmp_path: Path) -> None:
    """Buckets and unfinished orders go, and every folder of a batch that is not permuted."""
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
