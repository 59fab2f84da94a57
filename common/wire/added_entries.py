"""Convert the calls to a checking witness between protocol buffers and values."""

from typing import Final

from shuffledp.common.transparency.checkpoint import SignedCheckpoint
from shuffledp.common.transparency.growth import Growth
from shuffledp.common.transparency.log import LogEntry
from shuffledp.common.wire.fields import Codec
from shuffledp.common.wire.transparency import parse_hashes
from shuffledp.protos.shuffledp.v1 import log_pb2

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
