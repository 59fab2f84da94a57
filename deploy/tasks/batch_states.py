"""The states of a batch in words: for the live page and the terminal."""

from collections.abc import Mapping
from typing import Final

from common.messages.batch import BatchState

BATCH_STATES: Final[Mapping[BatchState, tuple[str, str]]] = {
    BatchState.COLLECTING: (
        "Collecting",
        "Users can take part until the target is reached, or until the deadline.",
    ),
    BatchState.CLOSED: (
        "Closed, being shuffled",
        "The batch is closed. Its reports are being put in random order.",
    ),
    BatchState.PERMUTED: (
        "Shuffled, being delivered",
        "The reports are in random order and on their way to the analyzer.",
    ),
    BatchState.DELIVERED: (
        "Delivered, being erased",
        "The analyzer has all reports. The copies here are being destroyed.",
    ),
    BatchState.ERASED: (
        "Delivered and erased",
        (
            "The analyzer has all reports. Their key here is destroyed as the last step. "
            "Hashes of sealed reports, for proofs that they were counted, may stay for some "
            "weeks; the numbers of users and of refused submissions stay."
        ),
    ),
    BatchState.EXPIRED: (
        "Expired: nothing was released",
        (
            "At the deadline there were fewer users than may be released. Their submissions "
            "are deleted, and the key here destroyed as the last step; no hashes are kept. "
            "The numbers of users and of refused submissions stay."
        ),
    ),
    BatchState.QUARANTINED: (
        "Quarantined: nothing was released",
        (
            "The analyzer did not accept the batch. It is kept, sealed, for you to look into; "
            "the logs of both services name the kind of error."
        ),
    ),
}
"""Headline and meaning of each state."""
SENTINELS_INCLUDED: Final = "an operator's sentinels included; n_min must hold without them"
"""Printed beside every number of users."""
