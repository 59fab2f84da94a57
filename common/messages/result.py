"""The released result of one batch: an estimate, what was refused, and who is promised what."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from common.errors import WireError
from common.messages.estimate import Estimate, Histogram
from common.messages.guarantee import Guarantee
from common.task_digest import TaskDigest

RefusalCause = Literal["repeated", "unreadable", "malformed"]
"""Why a report was not counted: the same ciphertext came twice; it did not open; it opened to
something that the task's mechanism cannot make."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """What the analyzer releases, once a task."""

    task_digest: TaskDigest
    protocol: str
    mechanism: str
    buckets: int
    """Possible answers of a mechanism for items; 0 of any other."""
    local_epsilon: float
    n_users: int
    n_reports: int
    """Sealed reports that arrived: users' own, dummies and null reports."""
    n_dummies: int
    """Dummies among the reports that were counted: known exactly where nothing was refused,
    otherwise in proportion."""
    refused: Mapping[RefusalCause, int]
    estimate: Estimate
    guarantees: tuple[Guarantee, ...]
    published_claim: str
    """What the protocol's paper would have claimed against the analyzer, in words."""
    open_seconds: float
    estimate_seconds: float
    n_sentinels: int = 0
    """An operator's test submissions, taken out before counting: no other number counts them."""
    n_sentinels_missing: int = 0
    """Of those, with at least one report that is not there; where the shuffler samples, by law."""
    n_sentinels_repeated: int = 0
    """Further copies of their reports; also among the refused."""

    @property
    def histogram(self) -> Histogram:
        """The estimate of a task that collects items; WireError for another kind."""
        if not isinstance(self.estimate, Histogram):
            raise WireError(f"the protocol {self.protocol} estimates no distribution of items")
        return self.estimate
