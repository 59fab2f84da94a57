"""A copy of the log: its leaf hashes, the checkpoints to serve, and proofs from them. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from common.errors import ProofError
from common.transparency.checkpoint import SignedCheckpoint
from common.transparency.log_entry import LogEntry
from common.transparency.merkle import LogTree, Path, leaf_hash

MAX_ENTRIES: Final = 1 << 18
"""Maximum number of entries of a copy, which take about 60 MB of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProof:
    """An entry's place in the log, for a device that computes the entry itself."""

    index: int
    path: Path
    checkpoint: SignedCheckpoint
    consistency: Path
    """From the device's last checkpoint; empty if it has none."""


class LogCopy:
    """The leaves of a log, and checkpoints: of two, fewer witnesses cosigned the larger one."""

    def __init__(self) -> None:
        self._leaves: list[bytes] = []
        self._indices: dict[bytes, int] = {}
        self._trees: dict[int, LogTree] = {}
        self.checkpoints: Sequence[SignedCheckpoint] = ()
        """The smallest first."""

    @property
    def size(self) -> int:
        """Number of leaves."""
        return len(self._leaves)

    def extend(self, leaves: Sequence[bytes]) -> None:
        """Append leaves; raise ProofError beyond MAX_ENTRIES."""
        if self.size + len(leaves) > MAX_ENTRIES:
            raise ProofError(f"the log has more than {MAX_ENTRIES} entries")
        self._indices |= {leaf: self.size + n for n, leaf in enumerate(leaves)}
        self._leaves += leaves

    def serve(self, checkpoints: Iterable[SignedCheckpoint]) -> None:
        """
        Replace the checkpoints. Cost: about 1 µs per entry for each checkpoint of a new size.

        Raises ProofError if one is not a head of these leaves.
        """
        ordered = sorted(checkpoints, key=lambda one: one.checkpoint.size)
        trees = {one.checkpoint.size: self.tree(one.checkpoint.size) for one in ordered}
        if any(trees[one.checkpoint.size].root != one.checkpoint.root for one in ordered):
            raise ProofError("a checkpoint of the log is not a head of its entries")
        self.checkpoints, self._trees = ordered, trees

    def leaves(self, after: int, limit: int) -> list[bytes]:
        """Return at most `limit` leaves after the first `after`."""
        return self._leaves[after : after + limit]

    def tree(self, size: int) -> LogTree:
        """Return the tree over the first leaves."""
        return self._trees.get(size) or LogTree(self._leaves[:size])

    def prove(self, entry: LogEntry, log_size: int) -> LogProof | None:
        """
        Prove an entry's inclusion to a device whose last checkpoint has `log_size` entries.

        The proof uses the best cosigned checkpoint that has the entry and is not older than the
        device's. If the device's is larger than all, so that the log was rolled back, it gets the
        newest, and refuses it. Returns None if no checkpoint has the entry.
        """
        index = self._indices.get(leaf_hash(entry.to_bytes()), self.size)
        having = [one for one in self.checkpoints if one.checkpoint.size > index]
        if not having:
            return None
        new = [one for one in having if one.checkpoint.size >= log_size]
        signed = new[0] if new else having[-1]
        tree = self.tree(signed.checkpoint.size)
        return LogProof(
            index=index,
            path=tree.prove_inclusion(index),
            checkpoint=signed,
            consistency=tree.prove_consistency(log_size) if new else (),
        )
