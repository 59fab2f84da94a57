"""Groups of one call, committed with those of other calls, and outcomes: for every store."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from common.crypto.batch_key import TAG_BYTES, BatchKey
from common.crypto.hpke import split_every
from common.messages.batch import BatchId
from common.messages.submission import Outcome
from shuffler.storage.group import TAGS, Group


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


def append_each_batch(
    arrivals: Sequence[Arrival], append_to: Callable[[Arrival], list[list[Outcome]]]
) -> list[list[list[Outcome]]]:
    """Append the arrivals of each batch as one, by ascending id; return the outcomes by arrival."""
    outcomes: list[list[list[Outcome]]] = [[]] * len(arrivals)
    for batch_id in sorted({arrival.batch_id for arrival in arrivals}):
        indices = [n for n, arrival in enumerate(arrivals) if arrival.batch_id == batch_id]
        calls = [arrivals[index] for index in indices]
        joined = replace(
            calls[0],
            groups=[group for call in calls for group in call.groups],
            token_tags=[of_group for call in calls for of_group in call.token_tags],
        )
        found = iter(append_to(joined))
        for index in indices:
            outcomes[index] = [next(found) for _ in arrivals[index].groups]
    return outcomes


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
