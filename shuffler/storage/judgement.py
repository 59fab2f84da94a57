"""The outcomes of submissions that are compared with stored ones. The same for every store."""

from collections.abc import Callable

from common.crypto.batch_key import TAG_BYTES
from common.crypto.hpke import split_every
from common.messages.submission import Outcome
from shuffler.storage.group import TAGS


def judge_group(
    tags: bytes, known: dict[bytes, bytes], use_token: Callable[[int], bool] | None, *, new: bool
) -> list[Outcome]:
    """
    Return the outcome of each submission of a group, in the group's order.

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
