"""
Groups: submissions that are opened, tagged and sealed under the batch's key together.

Each batch has its own key, under which its submissions, buckets and permuted reports are stored.
Destroying the key erases them; deleting a file would leave its content on the disk.

A worker forms a group from its share of a bulk call, so that neither sealed reports nor hashes pass
through the one process that answers all calls. Submissions in a group are sorted by their tags,
which are keyed hashes, and groups have random numbers: no order of arrival is kept. Workers draw
the numbers from the operating system, as they have no generator. The groups of several calls are
committed together, in every store.
"""

import itertools
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.crypto.batch_key import TAG_BYTES, BatchKey
from shuffledp.common.crypto.hpke import split_every
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.messages.submission import Outcome, split_submission

TAGS: Final = np.dtype([("head", "<u8"), ("rest", "V8"), ("content", f"V{TAG_BYTES}")])
"""A submission's two keyed hashes: of its id (head and rest), and of its sealed reports."""

_SIZE: Final = np.dtype("<u4")
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
    """The sizes of the submissions' sealed reports, and then the reports, submission by submission;
    encrypted under the batch's key."""

    def __len__(self) -> int:
        return len(self.tags) // TAGS.itemsize

    def entries(self) -> NDArray[np.void]:
        """Return the tags as an array, shape (n,), dtype TAGS."""
        return np.frombuffer(self.tags, dtype=TAGS)

    def sealed_tags(self, key: BatchKey) -> bytes:
        """Return the tags sealed for storage."""
        return key.seal(self.tags, _group_context(b"tags", self.number))

    def stored(self, outcomes: Sequence[Outcome], key: BatchKey) -> "Group":
        """Return a group of the submissions whose outcome is STORED."""
        kept = [outcome is Outcome.STORED for outcome in outcomes]
        if all(kept):
            return self
        submissions = open_group(self.number, self.sealed, key).submissions()
        return Group(
            number=self.number,
            tags=self.entries()[np.array(kept)].tobytes(),
            sealed=seal_group(itertools.compress(submissions, kept), key, self.number),
        )


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
    submissions = [
        reports
        for group in small
        for reports in open_group(group.number, group.sealed, key).submissions()
    ]
    tags = [tag for group in small for tag in split_every(group.tags, TAGS.itemsize)]
    order = sorted(range(len(tags)), key=tags.__getitem__)
    number = secrets.randbits(NUMBER_BITS)
    merged = Group(
        number=number,
        tags=b"".join([tags[index] for index in order]),
        sealed=seal_group([submissions[index] for index in order], key, number),
    )
    return [merged, *(group for group in groups if len(group) >= _MIN_GROUP)]


class OpenedGroup(NamedTuple):
    """The content of a stored group."""

    sizes: NDArray[np.uint32]
    """Bytes of each submission's sealed reports."""
    reports: bytes
    """All sealed reports, submission by submission."""

    def submissions(self) -> list[bytes]:
        """Return each submission's sealed reports."""
        ends = np.cumsum(self.sizes).tolist()
        return [self.reports[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def open_group(number: int, sealed: bytes, key: BatchKey) -> OpenedGroup:
    """Open a stored group."""
    content = key.open(sealed, _group_context(b"group", number))
    start = _SIZE.itemsize * (1 + int(np.frombuffer(content, _SIZE, count=1)[0]))
    sizes = np.frombuffer(content[:start], _SIZE)[1:]
    return OpenedGroup(sizes, content[start:])


def seal_group(submissions: Iterable[bytes], key: BatchKey, number: int) -> bytes:
    """Seal the reports of submissions for storage."""
    reports = list(submissions)
    sizes = np.array([len(reports), *map(len, reports)], dtype=_SIZE)
    return key.seal(b"".join([sizes.tobytes(), *reports]), _group_context(b"group", number))


def open_tags(number: int, sealed_tags: bytes, key: BatchKey) -> bytes:
    """Return a stored group's tags."""
    return key.open(sealed_tags, _group_context(b"tags", number))


def form_group(plaintexts: Sequence[bytes | None], raw_key: bytes) -> tuple[Group, list[int]]:
    """
    Form a group from envelopes' plaintexts; None for one that did not open. Run by workers too.

    An envelope of one of the task's lengths that opens contains an id and whole sealed reports,
    since sealing adds a fixed number of bytes.

    Returns the group, and for each of its submissions the index of its envelope. Cost: two hashes
    per submission, about 2 microseconds.
    """
    key, number = BatchKey(raw_key), secrets.randbits(NUMBER_BITS)
    tagged = []
    for index, plaintext in enumerate(plaintexts):
        if plaintext is not None:
            submission_id, reports = split_submission(plaintext)
            tagged.append((key.tag(submission_id) + key.tag(reports), index, reports))
    tagged.sort()
    group = Group(
        number=number,
        tags=b"".join([tags for tags, _, _ in tagged]),
        sealed=seal_group([reports for _, _, reports in tagged], key, number),
    )
    return group, [index for _, index, _ in tagged]


def _group_context(kind: bytes, number: int) -> bytes:
    return kind + number.to_bytes(8, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The groups of one call, stored together."""

    batch_id: BatchId
    key: BatchKey
    groups: Sequence[Group]
    deadline: int
    """The task's deadline, in seconds since 1970 UTC by the store's clock. From then on submissions
    are only compared with stored ones."""
    token_tags: Sequence[Sequence[bytes]] = ()
    """For each group the keyed hash of each submission's token, which is accepted once per batch;
    empty if no tokens are required."""

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)


def joined(calls: Sequence[Arrival]) -> Arrival:
    """Join the arrivals of several calls to one batch."""
    return replace(
        calls[0],
        groups=[group for call in calls for group in call.groups],
        token_tags=[of_group for call in calls for of_group in call.token_tags],
    )


def judge_group(
    tags: bytes, known: dict[bytes, bytes], use_token: Callable[[int], bool] | None, *, new: bool
) -> list[Outcome]:
    """
    Compare submissions with stored ones; return the outcome of each, in their group's order.

    Only a stored submission uses its token and can be repeated.

    `known` has stored submissions' keyed hashes of content, by those of their ids, for all ids of
    the group; submissions that are now stored are added. `use_token` uses the token of the
    submission at an index, and returns False if it was used before; None if none are required.
    `new` tells whether new submissions are accepted.
    """
    outcomes = []
    for index, entry in enumerate(split_every(tags, TAGS.itemsize)):
        tag, content = entry[:TAG_BYTES], entry[TAG_BYTES:]
        if tag in known:
            repeated = known[tag] == content
            outcomes.append(Outcome.REPEATED if repeated else Outcome.CONFLICT)
        elif not new:
            outcomes.append(Outcome.CLOSED)
        elif use_token is not None and not use_token(index):
            outcomes.append(Outcome.TOKEN_USED)
        else:
            known[tag] = content
            outcomes.append(Outcome.STORED)
    return outcomes
