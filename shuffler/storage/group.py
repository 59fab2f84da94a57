"""
Submissions that came together: opened, named and sealed under the batch's key in one go.

A group is what a worker makes of its share of a bulk call, so that neither sealed reports nor
hashes pass through the one process that answers all calls. In a group submissions stand in the
order of their tags, which are keyed hashes, and groups are numbered at random: no order of arrival
is kept.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke_pool import Opened
from common.task.task import SUBMISSION_ID_BYTES
from shuffler.storage.batch_key import TAG_BYTES, BatchKey

TAGS: Final = np.dtype([("head", "<u8"), ("rest", "V8"), ("content", f"V{TAG_BYTES}")])
"""A submission's two keyed hashes: of its id (head and rest), and of its sealed reports."""

_WIDTH: Final = TAGS.itemsize
_SMALL: Final = 64
"""Submissions from which on a group is stored as it came."""

NUMBER_BITS: Final = 63
"""What SQLite holds, without a sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Submissions of one batch as they are stored."""

    number: int
    """At random: groups are stored in its order."""
    tags: bytes
    """TAGS of each submission, ascending in the hash of the id."""
    sealed: bytes
    """All sealed reports, submission by submission, under the batch's key."""

    def __len__(self) -> int:
        return len(self.tags) // TAGS.itemsize

    def entries(self) -> NDArray[np.void]:
        """Give the tags as an array, shape (n,), dtype TAGS."""
        return np.frombuffer(self.tags, dtype=TAGS)

    def sealed_tags(self, key: BatchKey) -> bytes:
        """Give the tags as they are stored."""
        return key.seal(self.tags, _place(b"tags", self.number))

    def only(self, kept: NDArray[np.bool_], key: BatchKey) -> "Group":
        """Leave some submissions out. Shape (n,), True where one is kept."""
        reports = np.frombuffer(open_group(self.number, self.sealed, key), dtype=np.uint8)
        reports = reports.reshape(len(self), -1)[kept]
        return Group(
            number=self.number,
            tags=self.entries()[kept].tobytes(),
            sealed=key.seal(reports.tobytes(), _place(b"reports", self.number)),
        )


def merge_small(groups: Sequence[Group], key: BatchKey) -> list[Group]:
    """
    Lay groups of few submissions together, so that devices which come one by one take no row each.

    Cost: opening them and sealing one, some 5 microseconds a group.
    """
    small = [group for group in groups if len(group) < _SMALL]
    if len(small) < 2:  # noqa: PLR2004  # nothing to lay together
        return list(groups)
    reports = [
        np.frombuffer(open_group(group.number, group.sealed, key), dtype=np.uint8).reshape(
            len(group), -1
        )
        for group in small
    ]
    tags = [
        group.tags[at : at + _WIDTH] for group in small for at in range(0, len(group.tags), _WIDTH)
    ]
    order = sorted(range(len(tags)), key=tags.__getitem__)
    number = secrets.randbits(NUMBER_BITS)
    merged = Group(
        number=number,
        tags=b"".join([tags[place] for place in order]),
        sealed=key.seal(np.concatenate(reports)[order].tobytes(), _place(b"reports", number)),
    )
    return [merged, *(group for group in groups if len(group) >= _SMALL)]


def open_group(number: int, sealed: bytes, key: BatchKey) -> bytes:
    """Give a stored group's sealed reports, all of one submission after all of another."""
    return key.open(sealed, _place(b"reports", number))


def open_tags(number: int, sealed_tags: bytes, key: BatchKey) -> bytes:
    """Give a stored group's tags."""
    return key.open(sealed_tags, _place(b"tags", number))


def form_group(submissions: Sequence[bytes], key: BatchKey) -> tuple[Group, list[int]]:
    """
    Make a group of envelopes' plaintexts, each a submission id and sealed reports.

    Returns:
        The group, and which of `submissions` stands in each of its places.

    Cost: two hashes a submission, some 2 microseconds.
    """
    tag, number = key.tag, secrets.randbits(NUMBER_BITS)
    named = sorted(
        [
            (tag(one[:SUBMISSION_ID_BYTES]) + tag(one[SUBMISSION_ID_BYTES:]), place)
            for place, one in enumerate(submissions)
        ]
    )
    reports = b"".join([submissions[place][SUBMISSION_ID_BYTES:] for _, place in named])
    group = Group(
        number=number,
        tags=b"".join([tags for tags, _ in named]),
        sealed=key.seal(reports, _place(b"reports", number)),
    )
    return group, [place for _, place in named]


def form_from_opened(opened: Opened, raw_key: bytes) -> tuple[Group, list[int]]:
    """
    Make a group of the envelopes that opened. Run by the shuffler's workers.

    Envelopes of the task's one length that open hold an id and the task's number of sealed reports,
    as `unpack` checks: sealing adds a fixed number of bytes.

    Returns:
        The group, and which of the envelopes stands in each of its places.
    """
    size = len(opened.plaintexts) // max(1, len(opened.readable))
    readable = [place for place, good in enumerate(opened.readable) if good]
    group, places = form_group(
        [opened.plaintexts[place * size : (place + 1) * size] for place in readable],
        BatchKey(raw_key),
    )
    return group, [readable[place] for place in places]


def _place(kind: bytes, number: int) -> bytes:
    return kind + number.to_bytes(8, "big")
