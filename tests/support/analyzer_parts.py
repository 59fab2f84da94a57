"""The analyzer's parts as designed, for benchmarks until the analyzer has a job of its own."""

from dataclasses import dataclass, field

import numpy as np

from common.crypto.batch_key import BatchKey
from common.crypto.hpke import HpkePrivateKey, report_context
from common.crypto.hpke_pool import open_each
from common.crypto.signing import SignedTask
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BatchId
from common.messages.inclusion_proof import (
    HASH_BYTES,
    SALT_BYTES,
    bits_for,
    bucket_hashes,
    distinct_rows,
    leaves_of,
    salted_leaves,
    split_ranges,
)
from common.runtime.blocks import SealedBlocks, open_blocks
from common.task.task import Task
from shuffler.shuffle_job import PERMUTED


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerParts:
    """A job with the analyzer's stages, over the blocks that the shuffler permuted."""

    batch_id: BatchId
    signed: SignedTask
    batch_key: bytes = field(repr=False)
    private_key: bytes = field(repr=False)
    blocks: str
    n_parts: int
    n_ranges: int

    @property
    def folder(self) -> str:
        """The batch's folder of blocks."""
        return self.batch_id.hex()

    def split(self, part: int) -> None:
        """Split a part's reports, each behind its salted leaf, into ranges."""
        blocks, size = self._sealed_blocks(), self._task.sealed_report_bytes
        arrived = blocks.get(f"{PERMUTED}/{part}")
        leaves = salted_leaves(leaves_of(arrived, size), bytes(SALT_BYTES))
        rows = np.hstack([leaves, np.frombuffer(arrived, dtype=np.uint8).reshape(-1, size)])
        for number, one in enumerate(split_ranges(rows, self.n_ranges)):
            blocks.put(f"split/{part}.{number}", one.tobytes())

    def merge(self, number: int) -> None:
        """Drop a range's repeats, and hash its buckets."""
        blocks, width = self._sealed_blocks(), HASH_BYTES + self._task.sealed_report_bytes
        parts = [blocks.get(f"split/{part}.{number}") for part in range(self.n_parts)]
        rows = distinct_rows(np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(-1, width))
        leaves, bits = rows[:, :HASH_BYTES], bits_for(len(rows) * self.n_ranges)
        bucket_hashes(leaves, max(1, (1 << bits) // self.n_ranges), bits)
        blocks.put(f"leaves/{number}", leaves.tobytes())
        blocks.put(f"reports/{number}", rows[:, HASH_BYTES:].tobytes())

    def open(self, number: int) -> int:
        """Open, check and count a range's reports; return how many are valid."""
        blocks, task, mechanism = self._sealed_blocks(), self._task, mechanism_of(self._task)
        key, context = (
            HpkePrivateKey(task.suite, self.private_key),
            report_context(self.signed.digest()),
        )
        sealed = blocks.get(f"reports/{number}")
        opened = open_each(key, sealed, task.sealed_report_bytes, context)
        reports = np.frombuffer(opened.plaintexts, dtype=mechanism.report_dtype)
        valid = reports[np.frombuffer(opened.readable, dtype=np.bool_)]
        valid = valid[mechanism.valid(valid)]
        blocks.put(f"counts/{number}", mechanism.tally(valid).tobytes())
        return len(valid)

    @property
    def _task(self) -> Task:
        return Task.from_bytes(self.signed.task_bytes)

    def _sealed_blocks(self) -> SealedBlocks:
        return SealedBlocks(open_blocks(self.blocks), self.folder, BatchKey(self.batch_key))
