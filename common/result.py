"""The released result of one batch: a histogram, what was refused, and who is promised what."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from common.guarantee import Guarantee
from common.hpke import TaskDigest

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
    local_epsilon: float
    n_users: int
    n_reports: int
    """Sealed reports that arrived: users' own, dummies and null reports."""
    n_dummies: int
    refused: Mapping[RefusalCause, int]
    frequencies: NDArray[np.float64]
    """Debiased shares, one an item; may be negative, sum to about 1."""
    standard_errors: NDArray[np.float64]
    """Of the debiased shares. Intervals belong to these, never to the refined ones."""
    refined: NDArray[np.float64]
    """Shares at least 0 that sum to 1."""
    mse_theory: float
    """Mean over items of the debiased shares' exact variance."""
    guarantees: tuple[Guarantee, ...]
    published_bound: str
    """What the protocol's paper would have claimed against the analyzer, in words."""
    open_seconds: float
    estimate_seconds: float
