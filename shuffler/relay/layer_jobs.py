"""
The parts of one batch at a relay: open the layers, drop repeats, add dummies, permute.

Layers are opened once the relay has committed to all of them. The reports inside are split by their
salted leaf, which brings all copies of one together, as for the layers themselves.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from shuffledp.common.crypto.hpke import HpkePrivateKey, layer_context
from shuffledp.common.crypto.hpke_pool import open_each
from shuffledp.common.messages import inclusion_proof
from shuffledp.common.messages.inclusion_proof import HASH_BYTES
from shuffledp.common.receiving.received_job import ReceivedJob, rows_from
from shuffledp.common.task.task import cached_task
from shuffledp.shuffler.permutation import SealedReports
from shuffledp.shuffler.shuffle_job import PermutingJob

HOP: Final = 1
"""The relay's place among a task's shufflers."""
OPENED: Final = "opened"
"""Subfolder of the reports inside the layers, by opening and part."""
_MAX_OPENINGS: Final = 1 << 10
"""Maximum number of openings. It bounds the number of blocks, which is that of openings times
parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerJob(ReceivedJob):
    """The job of a batch of layers, whose methods are run by worker processes."""

    private_key: bytes = field(default=b"", repr=False)
    """Key that the layers are sealed to; set to open them."""
    n_opened_parts: int = 0
    """Parts of the reports inside; set to open them."""

    @property
    def n_openings(self) -> int:
        """Number of parts in which layers are opened: each of some slices."""
        return min(self.n_slices, _MAX_OPENINGS)

    def open(self, number: int) -> int:
        """
        Open the layers of some slices, and split the reports inside into parts.

        Returns the number of discarded layers: those that do not open, and repeated reports. Cost:
        one X25519 operation per layer, and one of ML-KEM in the hybrid suite; 3 µs per report.
        """
        task, rows = cached_task(self.task_bytes), []
        size, n_layers = task.report_bytes_at(HOP + 1), 0
        key = HpkePrivateKey(task.suite, self.private_key)
        for slice_number in range(number, self.n_slices, self.n_openings):
            layers = self.distinct(slice_number)[:, HASH_BYTES:]
            context = layer_context(self.task_digest, HOP)
            opened = open_each(key, layers.tobytes(), self.report_bytes, context)
            readable = np.frombuffer(opened.readable, dtype=np.bool_)
            reports = rows_from([opened.plaintexts], size)[readable]
            leaves = inclusion_proof.leaves_of(reports.tobytes(), size)
            rows.append(np.hstack([inclusion_proof.salted_leaves(leaves, self.salt), reports]))
            n_layers += len(layers)
        together = np.vstack(rows)
        splitting = replace(self, n_ranges=self.n_opened_parts)
        return n_layers - len(together) + splitting.split_rows(together, OPENED, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayJob(PermutingJob):
    """The job of a batch whose layers are opened, whose methods are run by worker processes."""

    n_openings: int

    def arrived(self, part: int, _: np.random.Generator) -> tuple[Counter[int], SealedReports]:
        """Return one part's distinct reports; count the repeated ones under 0."""
        blocks, row_bytes = self.sealed_blocks(), HASH_BYTES + self.task.report_bytes_at(HOP + 1)
        names = [f"{OPENED}/{opening}.{part}" for opening in range(self.n_openings)]
        rows = rows_from(list(map(blocks.get, names)), row_bytes)
        distinct = inclusion_proof.distinct_rows(rows)
        return Counter({0: len(rows) - len(distinct)}), distinct[:, HASH_BYTES:]
