import hashlib
from pathlib import Path
from typing import Final

import pytest

from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.errors import DamagedStorageError
from shuffledp.common.messages.batch import BatchId, BatchManifest
from shuffledp.common.runtime.blocks import FolderBlocks, SealedBlocks
from shuffledp.common.wire.batches import MAX_CHUNK_BYTES
from shuffledp.shuffler.delivery import chunks_of_part, deliver_parts
from tests.support.analyzers import MemoryAnalyzer
from tests.support.tasks import published

_SIZE: Final = 60_000
_CASE: Final = published()
_CONTENTS: Final = [bytes([part]) * (reports * _SIZE) for part, reports in enumerate((40, 2))]
_HASHES: Final = b"".join(hashlib.sha256(content).digest() for content in _CONTENTS)


@pytest.fixture
def blocks(tmp_path: Path) -> SealedBlocks:
    """Two parts of 40 and 2 reports."""
    sealed = SealedBlocks(FolderBlocks(tmp_path), "b", BatchKey(bytes(32)))
    for part, content in enumerate(_CONTENTS):
        sealed.put(f"permuted/{part}", content)
    return sealed


def _manifest() -> BatchManifest:
    return BatchManifest(
        task_digest=_CASE.signed.digest(), batch_id=BatchId(bytes(16)), n_users=21, n_reports=42
    )


def test_chunks_hold_whole_reports() -> None:
    """Only the last chunk of a part is shorter."""
    content = bytes(range(40)) * _SIZE
    chunks = list(chunks_of_part(content, _SIZE))

    assert content == b"".join(chunks)
    assert [17, 17, 6] == [len(chunk) // _SIZE for chunk in chunks]
    assert all(len(chunk) <= MAX_CHUNK_BYTES for chunk in chunks)


async def test_all_parts_arrive_in_their_places(blocks: SealedBlocks) -> None:
    """Whatever their order on the way."""
    analyzer = MemoryAnalyzer(_CASE.signed)
    await deliver_parts(analyzer, _manifest(), blocks, 2, _SIZE, hashes=_HASHES)
    await analyzer.finish_delivery(_manifest().task_digest)

    [(manifest, blob)] = analyzer.delivered
    assert _manifest() == manifest
    assert b"".join(_CONTENTS) == blob


async def test_a_missing_part_is_a_storage_error(blocks: SealedBlocks) -> None:
    """The delivery is retried, and not finished."""
    analyzer = MemoryAnalyzer(_CASE.signed)
    with pytest.raises(DamagedStorageError, match="a block of the batch is missing"):
        await deliver_parts(analyzer, _manifest(), blocks, 3, _SIZE, hashes=_HASHES)

    assert [] == analyzer.delivered


async def test_only_recorded_parts_are_sent(blocks: SealedBlocks) -> None:
    """An earlier block opens as well; by its dummies the receiver could tell dummies apart."""
    analyzer = MemoryAnalyzer(_CASE.signed)
    blocks.put("permuted/1", b"\2" * (2 * _SIZE))
    with pytest.raises(DamagedStorageError, match="part 1 is not the one that was recorded"):
        await deliver_parts(analyzer, _manifest(), blocks, 2, _SIZE, hashes=_HASHES)

    assert [] == analyzer.delivered
