"""
Convert files of the first version to blocks: permuted batches and inclusion proofs.

The first version kept a permuted batch in one file of sealed records, and a batch's leaves in
another.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

import numpy as np

from common.crypto.batch_key import BatchKey
from common.errors import DamagedStorageError
from common.messages.inclusion_proof import HASH_BYTES, bits_for, bucket_hashes
from common.runtime import logs
from common.runtime.blocks import Blocks, SealedBlocks
from common.runtime.database import storage_failures
from shuffler.active_batches import ActiveBatch
from shuffler.inclusion import write_proof
from shuffler.shuffle_job import PERMUTED, bucket_count
from shuffler.storage.submission_store import SubmissionStore

_TIME_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_MAX_RECORD_BYTES: Final = 2**28
"""Upper bound on a record's length, in case its header is damaged."""


async def convert_former_files(
    state: Path, store: SubmissionStore, batches: Sequence[ActiveBatch], blocks: Blocks
) -> None:
    """Convert the files of all unfinished batches, and all proofs. Run at start."""
    for batch in batches:
        stored = await store.get(batch.digest)
        folder = batch.batch_id.hex()
        convert_permuted(
            state / "batches" / folder,
            batch.key,
            SealedBlocks(blocks, folder, batch.key),
            n_parts=bucket_count(batch.task, stored.n_users),
            n_reports=stored.n_reports,
            size=batch.task.sealed_report_bytes,
        )
    convert_proofs(state / "inclusion", blocks)


def convert_permuted(
    folder: Path, key: BatchKey, blocks: SealedBlocks, *, n_parts: int, n_reports: int, size: int
) -> None:
    """
    Convert a permuted batch in `folder` to blocks, in its order, and delete the folder.

    Nothing happens if there is no such folder. Raises StorageError if it is damaged.
    """
    path, waiting, part = folder / "permuted", b"", 0
    if not path.exists():
        return
    part_bytes = -(-n_reports // n_parts) * size
    with storage_failures(), path.open("rb") as file:
        for number, sealed in enumerate(_sealed_records(file)):
            waiting += key.open(sealed, b"file" + b"\xff" * 4 + number.to_bytes(8))
            while len(waiting) >= part_bytes and part < n_parts - 1:
                blocks.put(f"{PERMUTED}/{part}", waiting[:part_bytes], durable=True)
                waiting, part = waiting[part_bytes:], part + 1
    for number in range(part, n_parts):
        blocks.put(f"{PERMUTED}/{number}", waiting if number == part else b"", durable=True)
    with storage_failures():
        shutil.rmtree(folder)


def convert_proofs(folder: Path, blocks: Blocks) -> None:
    """Convert the inclusion proofs in a folder to blocks. A damaged one is logged, and left."""
    for path in sorted(folder.glob("*.commitment")):
        with storage_failures():
            if not path.with_suffix(".leaves").exists():  # it was being deleted
                path.unlink()
                continue
            kept, leaves = path.read_bytes(), path.with_suffix(".leaves").read_bytes()
        if len(kept) <= _TIME_BYTES or len(leaves) % HASH_BYTES:
            logs.event("former proof is damaged", {"task_digest": path.stem}, level="ERROR")
            continue
        rows = np.frombuffer(leaves, dtype=np.uint8).reshape(-1, HASH_BYTES)
        bits = bits_for(len(rows))
        hashes, sizes = bucket_hashes(rows, 1 << bits, bits)
        proof = f"proof-{path.stem}"
        blocks.put(f"{proof}/leaves.0", leaves, durable=True)
        write_proof(
            blocks,
            proof,
            until=int.from_bytes(kept[:_TIME_BYTES]),
            n_ranges=1,
            hashes=hashes,
            sizes=sizes.tolist(),
            commitment=kept[_TIME_BYTES:],
        )
        with storage_failures():
            path.unlink()
            path.with_suffix(".leaves").unlink()


def _sealed_records(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file's records; raise DamagedStorageError if it is cut off."""
    while header := file.read(_LENGTH_BYTES):
        length = int.from_bytes(header, "big")
        sealed = file.read(min(length, _MAX_RECORD_BYTES))
        if len(sealed) != length:
            raise DamagedStorageError("a file of the batch ends in the middle of a record")
        yield sealed
