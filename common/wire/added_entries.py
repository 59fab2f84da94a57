"""Convert the calls to a checking witness between protocol buffers and values."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from common.crypto.signing import SignedTask
from common.errors import WireError
from common.limits import parse_count
from common.task_digest import DIGEST_BYTES
from common.transparency.checkpoint import SignedCheckpoint
from common.transparency.growth import verify_growth
from common.transparency.log_entry import EntryKind, LogEntry
from common.transparency.merkle import MAX_SIZE, Path, leaf_hash
from common.transparency.witness import Proof
from common.wire.fields import Codec
from common.wire.transparency import parse_hashes
from protos.shuffledp.v1 import log_pb2

MAX_ADDED: Final = 16
"""Maximum number of entries in one call: checking each task may take a second."""
MAX_ADDED_BYTES: Final = 3 * 1024 * 1024
"""The log sends fewer entries if their tasks would have more bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A checkpoint of a log, and all that it adds to an older one."""

    old_size: Annotated[int, partial(parse_count, maximum=MAX_SIZE)]
    subtrees: Path
    """Roots of the old tree's full subtrees, the largest first."""
    checkpoint: SignedCheckpoint
    entries: tuple[LogEntry, ...]
    tasks: tuple[bytes, ...]
    """The bytes of each task among the entries, in order."""

    def __post_init__(self) -> None:
        parse_count("the number of entries", len(self.entries), MAX_ADDED)
        signed = list(map(LogEntry.of_task, self.signed_tasks()))
        if len(signed) != len(self.tasks) or signed != self._named():
            raise WireError("the tasks of a call are not those of its entries")

    def signed_tasks(self) -> list[SignedTask]:
        """Return the added tasks, unverified."""
        pairs = zip(self._named(), self.tasks, strict=False)
        return [SignedTask(task_bytes=t, signature=e.content[DIGEST_BYTES:]) for e, t in pairs]

    def _named(self) -> list[LogEntry]:
        return [entry for entry in self.entries if entry.kind == EntryKind.TASK]

    def proof(self) -> Proof:
        """Return the proof that the old tree and these entries alone make up the new one."""
        leaves = [leaf_hash(entry.to_bytes()) for entry in self.entries]
        return partial(verify_growth, subtrees=self.subtrees, leaves=leaves)


_GROWTH: Final = Codec(
    Growth,
    log_pb2.AddEntriesRequest,
    {
        "subtrees": parse_hashes,
        "checkpoint": lambda _, note: SignedCheckpoint.parse(note),
        "entries": lambda _, entries: tuple(map(LogEntry.from_bytes, entries)),
    },
    {
        "subtrees": b"".join,
        "checkpoint": SignedCheckpoint.to_bytes,
        "entries": lambda entries: [entry.to_bytes() for entry in entries],
    },
)
growth_to_wire = _GROWTH.to_wire
growth_from_wire = _GROWTH.from_wire
