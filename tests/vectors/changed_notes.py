"""Signed notes with a few bytes changed at random, and what Python reads of them."""

import random
from collections.abc import Sequence
from typing import Any, Final

from shuffledp.common.errors import ShuffleDpError
from shuffledp.common.transparency.checkpoint import NoteKey, SignedCheckpoint
from tests.vectors.changed_tasks import difference

_CHANGES: Final = 400
_PIECES: Final = (
    *(b"\n", b" ", b"+", b"=", b"\n\n", b"\xff", b"\xef\xbb\xbf", b"0", b"\xc2\xa0", b"\x1c"),
    *("— a AAAAAAA=\n".encode(), "— b+ AAAAAAA=\n".encode(), "— a AAAA\n".encode()),
)


def changed_notes(note: bytes, keys: Sequence[NoteKey]) -> list[dict[str, Any]]:
    """
    Return changes of a note in Latin-1, each with the time of every key's signature.

    The times are null where the note is refused.
    """
    rng, found = random.Random(30), list[dict[str, Any]]()  # noqa: S311  # not for secrets
    for _ in range(_CHANGES):
        changed = bytearray(note)
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(changed))
            length = rng.choice((0, 0, 1, 1, 2, 60))
            changed[at : at + length] = rng.choice((b"", *_PIECES))
        lines = bytes(changed).split(b"\n")
        if rng.random() < 0.2:  # a share of the notes
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
        joined = b"\n".join(lines)
        stretch = difference(note.decode("latin-1"), joined.decode("latin-1"))
        found.append({**stretch, "times": _times(joined, keys)})
    return found


def _times(note: bytes, keys: Sequence[NoteKey]) -> list[str] | None:
    try:
        signed = SignedCheckpoint.parse(note)
    except ShuffleDpError:
        return None
    times = []
    for key in keys:
        try:
            times.append(str(signed.signed_at(key)))
        except ShuffleDpError as error:
            times.append(type(error).__name__)
    return times
