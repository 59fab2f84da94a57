"""
The growth of an append-only log, recomputed from its new entries. Pure.

A tree's state is the roots of its full subtrees, one for each bit of its size. They give its root
and, with further leaves, the roots of all larger trees, at about a hash a leaf
[RFC9162, Section 2.1.2].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Annotated, Final

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import ProofError, WireError
from shuffledp.common.limits import parse_count
from shuffledp.common.task_digest import DIGEST_BYTES
from shuffledp.common.transparency import merkle
from shuffledp.common.transparency.checkpoint import SignedCheckpoint
from shuffledp.common.transparency.log import EntryKind, LogEntry

MAX_ADDED: Final = 16
"""Maximum number of entries in one call: checking each task may take a second."""
MAX_ADDED_BYTES: Final = 3 * 1024 * 1024
"""The log sends fewer entries if their tasks would have more bytes."""


def joined_root(subtrees: Sequence[bytes]) -> bytes:
    """Return the root of the tree that full subtrees make up, the largest first."""
    if not subtrees:
        return merkle.EMPTY_ROOT
    return reduce(lambda right, left: merkle.node_hash(left, right), reversed(subtrees))


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A checkpoint of a log, and all entries that it adds to an older one."""

    old_size: Annotated[int, partial(parse_count, maximum=merkle.MAX_SIZE)]
    subtrees: merkle.Path
    """Roots of the old tree's full subtrees, the largest first."""
    checkpoint: SignedCheckpoint
    entries: tuple[LogEntry, ...]
    tasks: tuple[bytes, ...]
    """The bytes of each task among the entries, in order."""

    def __post_init__(self) -> None:
        parse_count("the number of entries", len(self.entries), MAX_ADDED)
        signed = list(map(LogEntry.of_task, self.signed_tasks()))
        if len(signed) != len(self.tasks) or signed != self._task_entries():
            raise WireError("the tasks of a call are not those of its entries")

    def signed_tasks(self) -> list[SignedTask]:
        """Return the added tasks, unverified."""
        pairs = zip(self._task_entries(), self.tasks, strict=False)
        return [SignedTask(task_bytes=t, signature=e.content[DIGEST_BYTES:]) for e, t in pairs]

    def verify(self, old_size: int, old_root: bytes, size: int, root: bytes) -> None:
        """
        Check that the tree with this size and root is the old one and the entries, none left out.

        Raises ProofError if it is not.
        """
        grown = list(self.subtrees)
        if len(grown) != old_size.bit_count() or joined_root(grown) != old_root:
            raise ProofError(
                f"the log's first {old_size} entries are not those of its last checkpoint: "
                f"{merkle.OLD_COPY}"
            )
        for number, entry in enumerate(self.entries, old_size + 1):
            leaf = merkle.leaf_hash(entry.to_bytes())
            for _ in range((number & -number).bit_length() - 1):
                leaf = merkle.node_hash(grown.pop(), leaf)
            grown.append(leaf)
        added = len(self.entries)
        if size != old_size + added or joined_root(grown) != root:
            raise ProofError(
                f"the {added} entries after the first {old_size} do not lead to the root of size "
                f"{size}: one is left out, moved or changed"
            )

    def _task_entries(self) -> list[LogEntry]:
        return [entry for entry in self.entries if entry.kind == EntryKind.TASK]
