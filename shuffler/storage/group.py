"""
Groups: submissions that are opened, tagged and sealed under the batch's key together.

Each batch has its own key, under which its submissions, buckets and permuted reports are stored.
Destroying the key erases them; deleting a file would leave its content on the disk.

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

from common.crypto.batch_key import TAG_BYTES, BatchKey
from common.crypto.hpke import split_every
from common.crypto.hpke_pool import Opened
from common.messages.submission import Outcome, split_submission

TAGS: Final = np.dtype([("head", "<u8"), ("rest", "V8"), ("content", f"V{TAG_BYTES}")])
"""A submission's two keyed hashes: of its id (head and rest), and of its sealed reports."""

_MIN_GROUP: Final = 64
"""Groups with fewer submissions are merged before they are stored."""
NUMBER_BITS: Final = 63
"""Bits of SQLite's non-negative integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Submissions of one batch as they are stored."""

    number: int
    """Random, since groups are stored in the order of their numbers."""
    tags: bytes
    """TAGS of each submission, sorted by the hash of the id."""
    sealed: bytes
    """All sealed reports, submission by submission, encrypted under the batch's key."""

    def __len__(self) -> int:
        return len(self.tags) // TAGS.itemsize

    def entries(self) -> NDArray[np.void]:
        """Return the tags as an array, shape (n,), dtype TAGS."""
        return np.frombuffer(self.tags, dtype=TAGS)

    def sealed_tags(self, key: BatchKey) -> bytes:
        """Return the tags sealed for storage."""
        return key.seal(self.tags, _group_context(b"tags", self.number))

    def only(self, kept: NDArray[np.bool_], key: BatchKey) -> "Group":
        """Return a group of the submissions for which `kept`, shape (n,), is True."""
        reports = np.frombuffer(open_group(self.number, self.sealed, key), dtype=np.uint8)
        reports = reports.reshape(len(self), -1)[kept]
        return Group(
            number=self.number,
            tags=self.entries()[kept].tobytes(),
            sealed=key.seal(reports.tobytes(), _group_context(b"reports", self.number)),
        )

    def stored(self, outcomes: Sequence[Outcome], key: BatchKey) -> "Group":
        """Return a group of the submissions whose outcome is STORED."""
        if all(outcome is Outcome.STORED for outcome in outcomes):
            return self
        return self.only(np.array([outcome is Outcome.STORED for outcome in outcomes]), key)


def merge_small(groups: Sequence[Group], key: BatchKey) -> list[Group]:
    """
    Merge small groups into one, so that single submissions do not take a row each.

    A single submission is thus sealed, opened and sealed again. This is far cheaper than opening
    its envelope, and lets all calls store the same kind of group.

    Cost: opening the small groups and sealing one, about 5 microseconds per group.
    """
    small = [group for group in groups if len(group) < _MIN_GROUP]
    if len(small) < 2:  # noqa: PLR2004  # one group cannot be merged
        return list(groups)
    reports = [
        np.frombuffer(open_group(group.number, group.sealed, key), dtype=np.uint8).reshape(
            len(group), -1
        )
        for group in small
    ]
    tags = [tag for group in small for tag in split_every(group.tags, TAGS.itemsize)]
    order = sorted(range(len(tags)), key=tags.__getitem__)
    number = secrets.randbits(NUMBER_BITS)
    merged = Group(
        number=number,
        tags=b"".join([tags[index] for index in order]),
        sealed=key.seal(
            np.concatenate(reports)[order].tobytes(), _group_context(b"reports", number)
        ),
    )
    return [merged, *(group for group in groups if len(group) >= _MIN_GROUP)]


def open_group(number: int, sealed: bytes, key: BatchKey) -> bytes:
    """Return a stored group's sealed reports, submission by submission."""
    return key.open(sealed, _group_context(b"reports", number))


def open_tags(number: int, sealed_tags: bytes, key: BatchKey) -> bytes:
    """Return a stored group's tags."""
    return key.open(sealed_tags, _group_context(b"tags", number))


def form_group(submissions: Sequence[bytes], key: BatchKey) -> tuple[Group, list[int]]:
    """
    Form a group from the plaintexts of envelopes, each a submission id and sealed reports.

    Returns:
        The group, and for each of its submissions the index in `submissions`.

    Cost: two hashes per submission, about 2 microseconds.
    """
    tag, number = key.tag, secrets.randbits(NUMBER_BITS)
    parts = [split_submission(plaintext) for plaintext in submissions]
    tagged = sorted(
        [(tag(submission_id) + tag(sealed), n) for n, (submission_id, sealed) in enumerate(parts)]
    )
    reports = b"".join([parts[index][1] for _, index in tagged])
    group = Group(
        number=number,
        tags=b"".join([tags for tags, _ in tagged]),
        sealed=key.seal(reports, _group_context(b"reports", number)),
    )
    return group, [index for _, index in tagged]


def form_from_opened(opened: Opened, raw_key: bytes) -> tuple[Group, list[int]]:
    """
    Form a group from the envelopes that opened. Run by the shuffler's workers.

    An envelope of the task's length that opens contains an id and the task's number of sealed
    reports, since sealing adds a fixed number of bytes.

    Returns:
        The group, and for each of its submissions the index of its envelope.
    """
    size = len(opened.plaintexts) // max(1, len(opened.readable))
    readable = [index for index, good in enumerate(opened.readable) if good]
    group, indices = form_group(
        [opened.plaintexts[index * size : (index + 1) * size] for index in readable],
        BatchKey(raw_key),
    )
    return group, [readable[index] for index in indices]


def _group_context(kind: bytes, number: int) -> bytes:
    return kind + number.to_bytes(8, "big")
