"""
Find repeated submissions: an index in memory over the groups on the disk.

The index holds 16 bytes for each stored submission: half of its tag, and the number of its group.
Half a tag matches by chance with probability 10^7 / 2^64; every match is compared with the whole
tag in the group, so chance never decides.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from common.messages.submission import Outcome
from common.sorted_index import SortedIndex
from shuffler.storage.batch_key import TAG_BYTES
from shuffler.storage.group import TAGS, Group

ReadTags = Callable[[int], bytes]
"""Returns the tags of a stored group by its number."""
UseToken = Callable[[int, int], bool]
"""Uses the token of a submission, by group and index in it; False if it was used before."""


class Deduplication:
    """The index of one batch's committed submissions."""

    def __init__(self) -> None:
        self._held = SortedIndex()

    def remember(self, group: Group) -> None:
        """Add a committed group."""
        self.remember_tags(group.tags, np.full(len(group), group.number, dtype=np.uint64))

    def remember_tags(self, tags: bytes | bytearray, numbers: NDArray[np.uint64]) -> None:
        """Add tags, with the number of each tag's group."""
        self._held.add(np.frombuffer(tags, dtype=TAGS)["head"].astype(np.uint64), numbers)

    def judge(
        self,
        groups: Sequence[Group],
        new_ones: Sequence[bool],
        read: ReadTags,
        use_token: UseToken | None = None,
    ) -> list[list[Outcome]]:
        """
        Return the outcome of each submission, for groups that are to be stored together.

        Only a stored submission uses its token, and only a stored one can be repeated.

        Args:
            groups: In the order of arrival.
            new_ones: For each group, whether new submissions are accepted; if not, submissions are
                only compared with stored ones.
            read: Reads a stored group's tags.
            use_token: Given where tokens are required.

        Cost: about a microsecond a submission; for a repeat a few, and a read of its group.
        """
        if not groups:
            return []
        tags = np.concatenate([group.entries() for group in groups])
        heads = tags["head"].astype(np.uint64)
        places, numbers = self._held.find(heads)
        different = not len(places) and len(set(heads.tolist())) == len(heads)
        if different and all(new_ones) and use_token is None:
            return [[Outcome.STORED] * len(group) for group in groups]
        known: dict[bytes, bytes] = {}
        for place, number in zip(places.tolist(), numbers.tolist(), strict=True):
            entries = np.frombuffer(read(number), dtype=TAGS)
            for entry in entries[entries["head"] == heads[place]]:
                raw = entry.tobytes()
                known[raw[:TAG_BYTES]] = raw[TAG_BYTES:]
        return [
            _compared(group.tags, known, use_token and partial(use_token, number), new=new)
            for number, (group, new) in enumerate(zip(groups, new_ones, strict=True))
        ]


def _compared(
    tags: bytes, known: dict[bytes, bytes], use_token: Callable[[int], bool] | None, *, new: bool
) -> list[Outcome]:
    outcomes = []
    for place, start in enumerate(range(0, len(tags), TAGS.itemsize)):
        tag = tags[start : start + TAG_BYTES]
        content = tags[start + TAG_BYTES : start + TAGS.itemsize]
        if tag in known:
            repeated = known[tag] == content
            outcomes.append(Outcome.REPEATED if repeated else Outcome.CONFLICT)
        elif not new:
            outcomes.append(Outcome.CLOSED)
        elif use_token is not None and not use_token(place):
            outcomes.append(Outcome.TOKEN_USED)
        else:
            known[tag] = content
            outcomes.append(Outcome.STORED)
    return outcomes
