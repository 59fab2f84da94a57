"""
Groups: submissions that are opened, tagged and sealed under the batch's key together.

A worker forms a group from its share of a bulk call, so that neither sealed reports nor hashes pass
through the one process that answers all calls. Submissions in a group are sorted by their tags,
which are keyed hashes, and groups have random numbers: no order of arrival is kept.
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

_SMALL: Final = 64
"""Groups with fewer submissions are merged before they are stored."""
_NUMBER_BITS: Final = 63
"""Bits of SQLite's non-negative integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Submissions of one batch as they are stored."""

    number: int
    """Random: groups are stored in the order of their numbers."""
    tags: bytes
    """TAGS of each submission, sorted by the hash of the id."""
    sealed: bytes
    """All sealed reports, submission by submission, under the batch's key."""

    def __len__(self) -> int:
        return len(self.tags) // TAGS.itemsize

    def entries(self) -> NDArray[np.void]:
        """Return the tags as an array, shape (n,), dtype TAGS."""
        return np.frombuffer(self.tags, dtype=TAGS)

    def sealed_tags(self, key: BatchKey) -> bytes:
        """Return the tags sealed for storage."""
        return key.seal(self.tags, _place(b"tags", self.number))

    def only(self, kept: NDArray[np.bool_], key: BatchKey) -> "Group":
        """Return the submissions where `kept`, shape (n,), is True."""
        reports = np.frombuffer(open_group(self.number, self.sealed, key), dtype=np.uint8)
        reports = reports.reshape(len(self), -1)[kept]
        return Group(
            number=self.number,
            tags=self.entries()[kept].tobytes(),
            sealed=key.seal(reports.tobytes(), _place(b"reports", self.number)),
        )


def merge_small(groups: Sequence[Group], key: BatchKey) -> list[Group]:
    """
    Merge small groups into one, so that single submissions do not take a row each.

    Cost: opening the small groups and sealing one, some 5 microseconds a group.
    """
    small = [group for group in groups if len(group) < _SMALL]
    if len(small) < 2:  # noqa: PLR2004  # nothing to merge
        return list(groups)
    reports = [
        np.frombuffer(open_group(group.number, group.sealed, key), dtype=np.uint8).reshape(
            len(group), -1
        )
        for group in small
    ]
    tags = [
        group.tags[at : at + TAGS.itemsize]
        for group in small
        for at in range(0, len(group.tags), TAGS.itemsize)
    ]
    order = sorted(range(len(tags)), key=tags.__getitem__)
    number = secrets.randbits(_NUMBER_BITS)
    merged = Group(
        number=number,
        tags=b"".join([tags[place] for place in order]),
        sealed=key.seal(np.concatenate(reports)[order].tobytes(), _place(b"reports", number)),
    )
    return [merged, *(group for group in groups if len(group) >= _SMALL)]


def open_group(number: int, sealed: bytes, key: BatchKey) -> bytes:
    """Return a stored group's sealed reports, submission by submission."""
    return key.open(sealed, _place(b"reports", number))


def open_tags(number: int, sealed_tags: bytes, key: BatchKey) -> bytes:
    """Return a stored group's tags."""
    return key.open(sealed_tags, _place(b"tags", number))


def form_group(submissions: Sequence[bytes], key: BatchKey) -> tuple[Group, list[int]]:
    """
    Form a group from the plaintexts of envelopes, each a submission id and sealed reports.

    Returns:
        The group, and for each of its submissions the index in `submissions`.

    Cost: two hashes a submission, some 2 microseconds.
    """
    tag, number = key.tag, secrets.randbits(_NUMBER_BITS)
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
    Form a group from the envelopes that opened. Run by the shuffler's workers.

    Envelopes of the task's one length hold an id and the task's number of sealed reports if they
    open, since sealing adds a fixed number of bytes.

    Returns:
        The group, and for each of its submissions the index of its envelope.
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
