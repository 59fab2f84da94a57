"""A refusal by one of the services, and which one is meant: nothing else is taken for it."""

from collections.abc import Awaitable
from dataclasses import dataclass

from common.errors import (
    BatchStateError,
    BudgetError,
    PeerError,
    ShuffleDpError,
    WireError,
)
from common.errors import (
    ConflictError as BatchConflictError,
)
from common.errors import (
    ConflictError as SubmissionConflictError,
)
from common.errors import (
    WireError as SealError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What a caller is told who is refused for one cause."""

    status: str
    words: str
    """Of the sentence beside the status; no other refusal has them."""

    def is_told_by(self, error: ShuffleDpError) -> bool:
        """Say whether an error tells of this refusal: not of a peer out of reach, say."""
        return error.status == self.status and self.words in str(error)


BELOW_N_MIN = Refusal(status=BatchStateError.status, words="fewer users than n_min")
BATCH_OVER = Refusal(status=BatchStateError.status, words="the task's batch is over")
NO_ENVELOPE = Refusal(status=SealError.status, words="a ciphertext does not open")
OTHER_LENGTH = Refusal(status=WireError.status, words="bytes; a submission of this task")
ID_USED = Refusal(status=SubmissionConflictError.status, words="used with other bytes")
ONE_RELEASE = Refusal(status=BatchConflictError.status, words="one task, one release")
OVER_BUDGET = Refusal(status=BudgetError.status, words="released to its population would cost")
LOST = Refusal(status=PeerError.status, words="the acknowledgement is lost")


async def refused(call: Awaitable[object], cause: Refusal) -> bool:
    """Say whether a call is refused, and for this cause."""
    try:
        await call
    except ShuffleDpError as error:
        return cause.is_told_by(error)
    return False


async def served(call: Awaitable[object]) -> bool:
    """Say whether a call is served; whatever hinders it, it is not."""
    try:
        await call
    except ShuffleDpError:
        return False
    return True
