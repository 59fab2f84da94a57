"""What a batch's states mean, in words: for the live page and the terminal."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from common.messages.batch import BatchState

BATCH_STATES: Final[Mapping[BatchState, tuple[str, str]]] = MappingProxyType(
    {
        BatchState.COLLECTING: (
            "Collecting",
            "Users can take part until the target is reached, or until the deadline.",
        ),
        BatchState.CLOSED: (
            "Closed, being shuffled",
            "Nobody can take part any more. The reports are being put in random order.",
        ),
        BatchState.PERMUTED: (
            "Shuffled, being delivered",
            "The reports are in random order and on their way to the analyzer.",
        ),
        BatchState.DELIVERED: (
            "Delivered, being erased",
            "The analyzer has all reports. What is left here is being destroyed.",
        ),
        BatchState.ERASED: (
            "Delivered and erased",
            (
                "The analyzer has all reports. Their key here is destroyed as the last step. "
                "Hashes of sealed reports, for proofs that they were counted, may stay for some "
                "weeks; how many users came, and how many submissions were refused, stays."
            ),
        ),
        BatchState.EXPIRED: (
            "Expired: nothing was released",
            (
                "At the deadline there were fewer users than may be released. What they sent is "
                "deleted, and its key here destroyed as the last step; no hashes of it are kept. "
                "How many users came, and how many submissions were refused, stays."
            ),
        ),
        BatchState.QUARANTINED: (
            "Quarantined: nothing was released",
            (
                "The analyzer would not take the batch. It is kept, sealed, for you to look into; "
                "the logs of both services say what kind of error it was."
            ),
        ),
    }
)
"""Of each a headline, and what it means."""
SENTINELS_INCLUDED: Final = "an operator's sentinels included; n_min must hold without them"
"""Of users, wherever an operator decides by their number."""
