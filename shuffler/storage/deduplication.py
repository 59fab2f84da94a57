"""
Which submissions are new: a look-up in memory over groups that lie on the disk.

For each stored submission 16 bytes are held: half of its tag, and the number of its group. That
half of a tag is found by chance with probability 10^7 / 2^64; whatever is found is compared whole
with what the group says, so that no chance ever decides.
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
"""Gives the tags of a stored group by its number."""
UseToken = Callable[[int, int], bool]
"""Uses the token of a submission, by its group and its place there; False if it was used before."""


class Deduplication:
    """What one batch holds already, committed groups only."""

    def __init__(self) -> None:
        self._held = SortedIndex()

    def remember(self, group: Group) -> None:
        """Take note of a group that has been committed."""
        self.remember_tags(group.tags, np.full(len(group), group.number, dtype=np.uint64))

    def remember_tags(self, tags: bytes | bytearray, numbers: NDArray[np.uint64]) -> None:
        """Take note of tags, and of the number of the group of each."""
        self._held.add(np.frombuffer(tags, dtype=TAGS)["head"].astype(np.uint64), numbers)

    def judge(
        self,
        groups: Sequence[Group],
        new_ones: Sequence[bool],
        read: ReadTags,
        use_token: UseToken | None = None,
    ) -> list[list[Outcome]]:
        """
        Say what becomes of each submission of groups that are to be stored together.

        Only what is stored uses its token, and only what was stored can be repeated.

        Args:
            groups: In the order in which they came.
            new_ones: Of each group, whether it may add anything; if not it is only compared.
            read: Where a stored group's tags are read.
            use_token: Where tokens are asked for.

        Cost: about a microsecond a submission; a few, and a read of a group, where one came before.
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
