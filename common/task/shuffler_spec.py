"""What the shuffler does besides permuting: it may drop reports, and add dummies for each item."""

import math
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.protocols import ShufflerLaw
from common.task.ranges import one_of, within

KEEP_SUM: Final = 2**32
"""What a keep_weight is a share of."""
RATIO_SUM: Final = 2**30
"""What the weights of a geometric law are shares of: two of them multiply below 2^63."""
MAX_PER_ITEM: Final = 2**24
"""Most dummies of one item."""
MAX_GEOMETRIC: Final = 2**20
"""The same for a geometric law, which is laid out place by place."""
_FAR_OFF: Final = 20
"""Reports: room where few are drawn and the law is far from normal."""
MAX_DRAWS: Final = 2**20
"""Draws that one item's number may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShufflerSpec:
    """
    Sampling and dummies by the shuffler [MSE25]. After the batch has closed, it

    * keeps each user's report with probability keep_weight / KEEP_SUM, and
    * adds z dummies that name an item, for each item apart, z drawn from the law:
      `binomial`, heads among `trials` fair coins, or `geometric`, two geometric flanks with
      P(z) ∝ l^(peak-z) below the peak and ∝ r^(z-peak) from it on, l = left_weight / RATIO_SUM,
      r = right_weight / RATIO_SUM, conditioned on z ≤ most.

    Every draw is one of bounded integers: what is accounted is what is drawn.
    """

    law: ShufflerLaw = "none"
    keep_weight: int = KEEP_SUM
    trials: int = 0
    peak: int = 0
    left_weight: int = 0
    right_weight: int = 0
    most: int = 0
    """The most dummies of one item."""

    def __post_init__(self) -> None:
        one_of("the law of the shuffler's dummies", self.law, get_args(ShufflerLaw))
        within("keep_weight", self.keep_weight, 1, KEEP_SUM)
        within("the trials of the shuffler's dummies", self.trials, 0, MAX_PER_ITEM)
        within("the peak of the shuffler's dummies", self.peak, 0, MAX_PER_ITEM)
        within("left_weight", self.left_weight, 0, RATIO_SUM - 1)
        within("right_weight", self.right_weight, 0, RATIO_SUM - 1)
        within("the most dummies of one item", self.most, 0, MAX_PER_ITEM)
        binomial, geometric = self.law == "binomial", self.law == "geometric"
        if (self.trials > 0) != binomial or (binomial and self.most != self.trials):
            raise TaskError(
                f"the law of the shuffler's dummies is {self.law}, trials is {self.trials} and "
                f"most is {self.most}; trials is above 0, and most the same, for binomial alone"
            )
        flanks = self.left_weight > 0 and self.right_weight > 0
        if geometric and not (flanks and self.most >= max(1, self.peak)):
            raise TaskError(
                f"the weights of the shuffler's dummies are {self.left_weight} and "
                f"{self.right_weight}, peak is {self.peak} and most is {self.most}; for geometric "
                "both weights are above 0, and most is no less than the peak and at least 1"
            )
        if geometric:
            self._check_cost()
        if not geometric and (self.peak or self.left_weight or self.right_weight):
            raise TaskError(
                f"the law of the shuffler's dummies is {self.law}; peak and weights are for "
                "geometric alone"
            )
        if self.law == "none" and self.most:
            raise TaskError(f"most is {self.most}; without a law it must be 0")

    def _check_cost(self) -> None:
        """Refuse flanks that hardly fall, or are cut at once: drawing from them would not end."""
        within("the most dummies of one item", self.most, 1, MAX_GEOMETRIC)
        if self.draws_per_item > MAX_DRAWS:
            raise TaskError(
                f"one item would take {self.draws_per_item:.3g} draws with weights "
                f"{self.left_weight} and {self.right_weight}, peak {self.peak} and most "
                f"{self.most}; it may take at most {MAX_DRAWS}"
            )

    @property
    def draws_per_item(self) -> float:
        """
        About how many bounded integers, or words of fair bits, one item's number takes.

        A step on a flank of ratio x goes on 1/(1-x) times; the place falls on its `length` places
        with probability 1 - x^length, and is drawn again otherwise.
        """
        if self.law != "geometric":
            return self.trials / 64
        sides = ((self.left_weight, self.peak), (self.right_weight, self.most - self.peak + 1))
        return sum(
            RATIO_SUM / (RATIO_SUM - weight) / -math.expm1(length * math.log(weight / RATIO_SUM))
            for weight, length in sides
            if length
        )

    @property
    def kept(self) -> float:
        """Probability that a report is kept; exact."""
        return self.keep_weight / KEEP_SUM

    @property
    def idle(self) -> bool:
        """Whether the shuffler does nothing but permute."""
        return self.law == "none" and self.keep_weight == KEEP_SUM

    def batch_reports(self, sent: int, domain_size: int) -> tuple[int, int]:
        """
        Return the fewest and the most reports that leave the shuffler of so many that users sent.

        Where their number is drawn, all but what happens once in 10^12 batches at most: sums that
        lie ten standard deviations off, and some, mean that dummies were lost or made twice.
        """
        if self.idle:
            return sent, sent
        mean, spread = self.moments()
        middle = sent * self.kept + domain_size * mean
        deviation = math.sqrt(sent * self.kept * (1 - self.kept) + domain_size * spread)
        reach = 10 * deviation + _FAR_OFF
        most = min(sent + domain_size * self.most, math.ceil(middle + reach))
        return max(0, math.floor(middle - reach)), most

    def probabilities(self) -> NDArray[np.float64]:
        """Return P(z) for z = 0 .. most, for a geometric law; raise ValueError for another."""
        if self.law != "geometric":
            raise ValueError(f"the law is {self.law}")
        z = np.arange(self.most + 1, dtype=np.float64)
        left = math.log(self.left_weight / RATIO_SUM)
        right = math.log(self.right_weight / RATIO_SUM)
        weights = np.exp(np.where(z < self.peak, (self.peak - z) * left, (z - self.peak) * right))
        law: NDArray[np.float64] = weights / weights.sum()
        return law

    def moments(self) -> tuple[float, float]:
        """Return the mean and the variance of z."""
        if self.law == "none":
            return 0.0, 0.0
        if self.law == "binomial":
            return self.trials / 2, self.trials / 4
        law, z = self.probabilities(), np.arange(self.most + 1)
        mean = float(law @ z)
        return mean, float(law @ (z - mean) ** 2)


PERMUTES: Final = ShufflerSpec()
"""A shuffler that permutes, and nothing else."""
