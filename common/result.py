"""The released result of one batch: a histogram, what was refused, and who is promised what."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from common.errors import WireError
from common.guarantee import Guarantee
from common.task_digest import TaskDigest

RefusalCause = Literal["repeated", "unreadable", "malformed"]
"""Why a report was not counted: the same ciphertext came twice; it did not open; it opened to
something that the task's mechanism cannot make."""


def interval_reach(confidence: float) -> float:
    """Give how many standard errors an interval reaches to each side."""
    return -NormalDist().inv_cdf((1 - confidence) / 2)  # exact in the far tail, unlike 1 - …


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histogram:
    """The estimate of one batch, with its errors."""

    frequencies: NDArray[np.float64]
    """Debiased shares, one an item; may be negative, sum to about 1."""
    standard_errors: NDArray[np.float64]
    """Of the debiased shares. Intervals belong to these, never to the refined ones."""
    refined: NDArray[np.float64]
    """A distribution: at least 0, sum 1. Usually closer to the truth, but biased."""
    mse_theory: float
    """Mean over items of the debiased shares' exact variance."""

    def __post_init__(self) -> None:
        lengths = {len(self.frequencies), len(self.standard_errors), len(self.refined)}
        if len(lengths) != 1:
            raise WireError(f"a histogram's lists have different lengths: {sorted(lengths)}")

    def interval(self, confidence: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Give the ends of each item's own interval, by the normal approximation."""
        reach = interval_reach(confidence) * self.standard_errors
        return self.frequencies - reach, self.frequencies + reach

    def tells_values_apart(self, confidence: float) -> bool:
        """
        Say whether any item's share is distinguishable from none.

        Simultaneous intervals decide (Bonferroni): of many items that nobody holds, some have an
        interval of their own above 0 by chance.
        """
        size = len(self.frequencies)
        low, _ = self.interval(1 - (1 - confidence) / max(1, size))
        return bool((low > 0).any())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """What the analyzer releases, once a task."""

    task_digest: TaskDigest
    protocol: str
    mechanism: str
    buckets: int
    local_epsilon: float
    n_users: int
    n_reports: int
    """Sealed reports that arrived: users' own, dummies and null reports."""
    n_dummies: int
    """Dummies among the reports that were counted: known exactly where nothing was refused,
    otherwise in proportion."""
    refused: Mapping[RefusalCause, int]
    histogram: Histogram
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
