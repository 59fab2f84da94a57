"""The parts of one batch at the analyzer: match sentinels, open and count."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np

from shuffledp.analyzer.batch_counts import SliceCounts, count_reports
from shuffledp.analyzer.sentinels import PartMatches, match_part
from shuffledp.common.crypto.hpke import HpkePrivateKey, report_context
from shuffledp.common.crypto.hpke_pool import open_each
from shuffledp.common.mechanisms.base import Randomizer, Tally
from shuffledp.common.messages.inclusion_proof import HASH_BYTES, salted, split
from shuffledp.common.receiving.received_job import ReceivedJob, Rows
from shuffledp.common.task.kinds import KINDS
from shuffledp.common.task.task import cached_task

_COUNTS: Final = "counts"
_TASKS_HELD: Final = 8


@lru_cache(maxsize=_TASKS_HELD)
def _mechanism_of(task_bytes: bytes) -> Randomizer:
    from shuffledp.common.mechanisms.registry import randomizer_of  # noqa: PLC0415  # only to count

    return randomizer_of(cached_task(task_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class CountJob(ReceivedJob):
    """The job of a batch that is staged and counted, whose methods are run by worker processes."""

    private_key: bytes = field(default=b"", repr=False)
    """Key that the reports are sealed to; set for the release."""
    sentinel_leaves: bytes = field(default=b"", repr=False)
    """Leaves of all sentinels, concatenated; set for the release."""

    def match(self, part: int) -> PartMatches:
        """Find the sentinels' reports in an arrived part."""
        return match_part(self.arrived(part), self.report_bytes, split(self.sentinel_leaves))

    def count(self, slice_number: int) -> SliceCounts:
        """
        Open, check and count the reports of one slice, without sentinels' reports.

        The counts by cell go into a block, which holds only the cells that are not zero: a slice
        may have far fewer reports than there are cells. Reports of open dictionaries stay reports.

        Cost: one X25519 operation per report, and one of ML-KEM in the hybrid suite.
        """
        sealed = self._without_sentinels(self.distinct(slice_number))[:, HASH_BYTES:]
        opened = open_each(
            HpkePrivateKey(cached_task(self.task_bytes).suite, self.private_key),
            sealed.tobytes(),
            self.report_bytes,
            report_context(self.task_digest),
        )
        mechanism = _mechanism_of(self.task_bytes)
        found, counts = count_reports(opened, mechanism)
        if self._in_cells:
            [cells] = counts.reshape(-1).nonzero()
            counts = np.stack([cells, counts.reshape(-1)[cells]])
        self.sealed_blocks().put(f"{_COUNTS}/{slice_number}", counts.tobytes())
        return found

    def cells(self) -> Tally:
        """Add up the counts of all slices, or join their reports. Run by the coordinator."""
        mechanism, blocks = _mechanism_of(self.task_bytes), self.sealed_blocks()
        none = mechanism.tally(np.empty(0, dtype=mechanism.report_dtype))
        contents = (
            np.frombuffer(blocks.get(f"{_COUNTS}/{slice_number}"), dtype=none.dtype)
            for slice_number in range(self.n_slices)
        )
        if not self._in_cells:
            return np.concatenate([none, *contents])
        total = np.zeros(none.size, dtype=np.int64)
        for content in contents:
            cells, counts = content.reshape(2, -1)
            total[cells] += counts
        return total.reshape(none.shape)

    @property
    def _in_cells(self) -> bool:
        return KINDS[cached_task(self.task_bytes).kind].counted_in_cells

    def _without_sentinels(self, rows: Rows) -> Rows:
        if not self.sentinel_leaves:
            return rows
        gone = {salted(self.salt, leaf) for leaf in split(self.sentinel_leaves)}
        kept = [leaf.tobytes() not in gone for leaf in rows[:, :HASH_BYTES]]
        return rows[np.array(kept, dtype=np.bool_)]
