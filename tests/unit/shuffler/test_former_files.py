from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from common.crypto.hpke import split_every
from common.errors import DamagedStorageError
from common.messages.batch import BatchState
from common.messages.inclusion_proof import InclusionProof, leaf
from common.runtime.blocks import FolderBlocks, SealedBlocks
from common.wire.batches import commitment_to_bytes
from shuffler.former_files import convert_former_files, convert_permuted, convert_proofs
from tests.support.former_files import write_former_batch
from tests.support.leaves import GrownTree, commitment_over
from tests.support.shuffler_core import CASE, DIGEST, Shuffler

_SIZE = CASE.task.sealed_report_bytes


async def test_a_permuted_batch_of_the_first_version_is_delivered(shuffler: Shuffler) -> None:
    """Its file becomes blocks at the start; then it is deleted."""
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    await shuffler.advance()
    [batch] = shuffler.batches.unfinished()
    blocks = shuffler.blocks
    folder = batch.batch_id.hex()
    whole = SealedBlocks(blocks, folder, batch.key).get("permuted/0")
    blocks.delete(folder)
    former = shuffler.path / "batches" / folder
    write_former_batch(former, batch.key, [whole[: 7 * _SIZE], whole[7 * _SIZE :]])
    await convert_former_files(shuffler.path, shuffler.store, [batch], blocks)
    await convert_former_files(shuffler.path, shuffler.store, [batch], blocks)
    shuffler.analyzer.reachable = True
    await shuffler.advance()

    [(_, delivered)] = shuffler.analyzer.delivered
    assert whole == delivered
    assert BatchState.ERASED is await shuffler.state()
    assert not former.exists()


@pytest.mark.parametrize("n_parts", [1, 2, 3, 7])
async def test_every_report_of_a_converted_batch_is_in_one_part(
    shuffler: Shuffler, tmp_path: Path, n_parts: int
) -> None:
    """Ten reports in records of four; some of seven parts are empty."""
    await shuffler.submit(1)
    [batch] = shuffler.batches.unfinished()
    reports = [bytes([number]) * _SIZE for number in range(10)]
    chunks = [b"".join(reports[start : start + 4]) for start in range(0, 10, 4)]
    write_former_batch(tmp_path / "former", batch.key, chunks)
    blocks = SealedBlocks(FolderBlocks(tmp_path / "blocks"), "b", batch.key)
    convert_permuted(
        tmp_path / "former", batch.key, blocks, n_parts=n_parts, n_reports=10, size=_SIZE
    )
    parts = [blocks.get(f"permuted/{part}") for part in range(n_parts)]

    assert Counter(reports) == Counter(split_every(b"".join(parts), _SIZE))
    assert not any(len(part) % _SIZE for part in parts)


async def test_a_damaged_batch_of_the_first_version_keeps_its_file(
    shuffler: Shuffler, tmp_path: Path
) -> None:
    """An operator can still repair it."""
    await shuffler.submit(1)
    [batch] = shuffler.batches.unfinished()
    write_former_batch(tmp_path / "former", batch.key, [bytes(_SIZE)])
    path = tmp_path / "former" / "permuted"
    path.write_bytes(path.read_bytes()[:-1])
    blocks = SealedBlocks(FolderBlocks(tmp_path / "blocks"), "b", batch.key)

    with pytest.raises(DamagedStorageError, match="ends in the middle"):
        convert_permuted(tmp_path / "former", batch.key, blocks, n_parts=1, n_reports=1, size=_SIZE)
    assert path.exists()


async def test_a_proof_of_the_first_version_is_served(shuffler: Shuffler) -> None:
    """Its leaves and commitment become blocks, with the same time of deletion."""
    reports = split_every(np.random.default_rng(2).bytes(1500 * _SIZE), _SIZE)
    leaves = list(map(leaf, reports))
    commitment = commitment_over(leaves, CASE.identity, DIGEST)
    buckets = GrownTree(leaves).buckets
    folder = shuffler.path / "inclusion"
    folder.mkdir()
    until = int(shuffler.clock.now()) + 100
    kept = until.to_bytes(8) + commitment_to_bytes(commitment)
    (folder / f"{DIGEST.hex()}.commitment").write_bytes(kept)
    (folder / f"{DIGEST.hex()}.leaves").write_bytes(b"".join(buckets))
    convert_proofs(folder, shuffler.blocks)

    assert [] == list(folder.iterdir())
    own = leaves[700]
    proof, _ = await shuffler.inclusions.relay(DIGEST, commitment.prefix_of(own))
    assert isinstance(proof, InclusionProof)
    assert proof.includes(own, CASE.identity.public_identity(), DIGEST)
    shuffler.clock.seconds = float(until + 1)
    shuffler.inclusions.delete_expired()
    assert [] == list((shuffler.path / "blocks").iterdir())
