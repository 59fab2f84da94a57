import pickle

import pytest

from common.errors import DamagedStorageError
from shuffler.storage.group import BatchKey


def test_rows_open_under_their_own_key_only() -> None:
    """Another key, or a changed byte, opens nothing."""
    key, other = BatchKey(BatchKey.generate()), BatchKey(BatchKey.generate())
    sealed = key.seal(b"row")

    assert key.open(sealed) == b"row"
    with pytest.raises(DamagedStorageError):
        other.open(sealed)
    with pytest.raises(DamagedStorageError):
        key.open(sealed[:-1] + bytes([sealed[-1] ^ 1]))
    with pytest.raises(DamagedStorageError):
        key.open(b"")


def test_a_row_opens_only_where_it_was_stored() -> None:
    """One that was moved is as bad as one that was changed."""
    key = BatchKey(BatchKey.generate())
    sealed = key.seal(b"row", b"place 1")

    assert b"row" == key.open(sealed, b"place 1")
    with pytest.raises(DamagedStorageError):
        key.open(sealed, b"place 2")


def test_equal_rows_look_different_and_equal_ids_look_alike() -> None:
    """Rows are sealed under fresh nonces; tags are a keyed hash."""
    key, other = BatchKey(BatchKey.generate()), BatchKey(BatchKey.generate())

    assert key.seal(b"row") != key.seal(b"row")
    assert key.tag(b"id") == key.tag(b"id")
    assert key.tag(b"id") != other.tag(b"id")


def test_a_batch_key_neither_prints_nor_pickles() -> None:
    """Its raw bytes stay in its file."""
    raw = BatchKey.generate()

    assert raw.hex() not in repr(BatchKey(raw))
    with pytest.raises(TypeError):
        pickle.dumps(BatchKey(raw))
