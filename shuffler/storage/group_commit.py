"""The groups of a call, which the store commits together with those of other calls."""

from collections.abc import Sequence
from dataclasses import dataclass

from common.crypto.batch_key import BatchKey
from common.messages.batch import BatchId
from shuffler.storage.group import Group


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
