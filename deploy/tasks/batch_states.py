"""Descriptions of the states of a batch, for the live page and the terminal."""

from collections.abc import Mapping
from typing import Final

from common.messages.batch import BatchState

BATCH_STATES: Final[Mapping[BatchState, tuple[str, str]]] = {
    BatchState.COLLECTING: (
        "Collecting",
        "Users can submit until the batch reaches its target size or the deadline passes.",
    ),
    BatchState.CLOSED: (
        "Closed, being shuffled",
        "The batch is closed. The shuffler is permuting its reports.",
    ),
    BatchState.PERMUTED: (
        "Shuffled, being delivered",
        "The reports are permuted and on their way to the analyzer.",
    ),
    BatchState.DELIVERED: (
        "Delivered, being erased",
        "The analyzer has all reports. The shuffler is destroying its copies.",
    ),
    BatchState.ERASED: (
        "Delivered and erased",
        (
            "The analyzer has all reports. The shuffler has destroyed its copies, their key last. "
            "It may keep hashes of sealed reports for some weeks, for inclusion proofs, and keeps "
            "the numbers of users and of refused submissions."
        ),
    ),
    BatchState.EXPIRED: (
        "Expired: nothing was released",
        (
            "At the deadline the batch had fewer than n_min users. The shuffler has deleted their "
            "submissions and destroyed the key last; it keeps no hashes. It keeps the numbers of "
            "users and of refused submissions."
        ),
    ),
    BatchState.QUARANTINED: (
        "Quarantined: nothing was released",
        (
            "The analyzer refused the batch. The shuffler keeps it, sealed, for the operator to "
            "investigate; the logs of both services name the kind of error."
        ),
    ),
}
SENTINELS_INCLUDED: Final = "an operator's sentinels included; n_min must be met without them"
"""Printed beside every number of users."""
