"""The report format and probabilities of local hashing [WBLJ17], for any hash family."""

from abc import abstractmethod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Reports
from common.mechanisms.support import AnswerCounting

REPORT_DTYPE: Final = np.dtype([("seed", "<u8"), ("bucket", "<u4")])


class HashedResponse(AnswerCounting):
    """
    Hash the value with a fresh uniform seed, then apply randomized response over the buckets.

    A report (seed, bucket) supports every value that its seed hashes to its bucket. The seed is
    independent of the value, so the odds of the weights bound the privacy loss.
    """

    @abstractmethod
    def hashed(self, reports: Reports, item: int) -> NDArray[np.int64]:
        """Hash an item with each report's seed: buckets below g, shape (n,). Run by auditors."""

    @abstractmethod
    def _seeds(self, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draw `count` uniform seeds."""

    report_dtype = REPORT_DTYPE
    """A 64-bit seed and a 32-bit bucket."""

    @property
    def q(self) -> float:
        """Probability 1/g that a seed hashes another value to the reported bucket."""
        return 1 / self.answers

    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        """
        Draw `count` uniform reports, each with a fresh seed. Run by the user agent.

        Reusing the seed of the user's report, as the printed OD-HP does [CC24], would link the
        user's messages and make the published theorem false.
        """
        buckets = rng.integers(0, self.answers, size=count, dtype=np.int64)
        return self._pack(self._seeds(count, rng), buckets)

    def _pack(self, seeds: NDArray[Any], buckets: NDArray[np.int64]) -> Reports:
        """Combine seeds and buckets into reports."""
        reports = np.empty(seeds.shape, dtype=REPORT_DTYPE)
        reports["seed"] = seeds
        reports["bucket"] = buckets
        return reports

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        """Return which reports have the bucket of an item under their seed. Run by auditors."""
        supported: NDArray[np.bool_] = self.hashed(reports, item) == reports["bucket"]
        return supported
