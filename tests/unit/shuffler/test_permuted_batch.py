from pathlib import Path
from typing import Final

import pytest

from common.crypto.batch_key import BatchKey
from common.errors import DamagedStorageError
from common.runtime.blocks import FolderBlocks, SealedBlocks
from common.wire.batches import MAX_CHUNK_BYTES
from shuffler.permuted_batch import permuted_chunks

_SIZE: Final = 60_000


@pytest.fixture
def blocks(tmp_path: Path) -> SealedBlocks:
    """Two parts of 40 and 2 reports."""
    sealed = SealedBlocks(FolderBlocks(tmp_path), "b", BatchKey(bytes(32)))
    for part, n_reports in enumerate((40, 2)):
        sealed.put(f"permuted/{part}", bytes([part]) * (n_reports * _SIZE))
    return sealed


async def _read(blocks: SealedBlocks, n_parts: int, n_reports: int) -> list[bytes]:
    chunks = permuted_chunks(blocks, n_parts=n_parts, n_reports=n_reports, size=_SIZE)
    return [chunk async for chunk in chunks]


async def test_chunks_hold_whole_reports_in_the_order_of_the_parts(blocks: SealedBlocks) -> None:
    """Only the last chunk of a part is shorter."""
    chunks = await _read(blocks, 2, 42)

    assert bytes(40 * _SIZE) + b"\1" * (2 * _SIZE) == b"".join(chunks)
    assert [17, 17, 6, 2] == [len(chunk) // _SIZE for chunk in chunks]
    assert all(len(chunk) <= MAX_CHUNK_BYTES for chunk in chunks)


@pytest.mark.parametrize(("n_reports", "n_parts"), [(43, 2), (41, 2), (42, 1)])
async def test_a_batch_that_lacks_reports_is_not_delivered(
    blocks: SealedBlocks, n_reports: int, n_parts: int
) -> None:
    """The number of reports must be the manifest's."""
    with pytest.raises(DamagedStorageError, match=f"has {n_reports} reports"):
        [
            chunk
            async for chunk in permuted_chunks(
                blocks, n_parts=n_parts, n_reports=n_reports, size=_SIZE
            )
        ]


async def test_a_missing_part_is_a_storage_error(blocks: SealedBlocks) -> None:
    """The delivery is retried."""
    with pytest.raises(DamagedStorageError, match="a block of the batch is missing"):
        await _read(blocks, 3, 42)
