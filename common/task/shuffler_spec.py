"""
Sampling and dummies by the shuffler [MSE25].

A distribution of the dummies is added as a row of `_ROWS`, and in the methods that differ. Every
draw is exact: fair bits, and bounded integers that numpy draws by rejection. A floating-point table
of the distribution would cut off its tail, on which the δ of the guarantee depends [MSE25].
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.protocols import ShufflerDistribution
from common.task.specs import Rules, check_distribution, whole

KEEP_SUM: Final = 2**32
"""Denominator of keep_weight."""
RATIO_SUM: Final = 2**30
"""Denominator of a geometric distribution's weights; products of two stay below 2^63."""
MAX_PER_ITEM: Final = 2**24
"""Maximum number of dummies of one item."""
MAX_GEOMETRIC: Final = 2**20
"""Maximum number of dummies of one item for a geometric distribution, which is tabulated."""
_FALSE_ALARM: Final = 1e-12
"""Maximum probability that an honest batch's size is outside the bounds of `batch_reports`."""
_STEP_RATIOS: Final = np.geomspace(1 / 8, 8, 19)
_MAX_STEP: Final = 30.0
"""Larger steps of Chernoff's bound would gain less than one report."""
MAX_DRAWS: Final = 2**20
"""Maximum expected number of draws for one item's dummies."""
_WORD_BITS: Final = 64
_WORDS_AT_ONCE: Final = 2**22
"""Maximum number of random words in memory: 32 MiB."""
_KEEP: Final = {"keep_weight": whole(1, KEEP_SUM)}
_COINS: Final = whole(1, MAX_PER_ITEM)
_RATIO: Final = whole(1, RATIO_SUM - 1)
_ROWS: Final[Mapping[str, Rules]] = {
    "none": _KEEP,
    "binomial": {**_KEEP, "trials": _COINS, "most": _COINS},
    "geometric": {
        **_KEEP,
        "peak": whole(0, MAX_GEOMETRIC),
        "left_weight": _RATIO,
        "right_weight": _RATIO,
        "most": whole(1, MAX_GEOMETRIC),
    },
}
"""Rules of each distribution's numbers; all others are 0."""


def log_sum(logs: NDArray[np.float64]) -> float:
    """Return the logarithm of the sum of the exponentials of `logs`."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShufflerSpec:
    """
    Sampling and dummies by the shuffler [MSE25].

    After the batch has closed, the shuffler

    * keeps each user's report with probability keep_weight / KEEP_SUM, and
    * adds z dummies that name an item, for each item independently. z is `binomial`, the heads
      in `trials` tosses of a fair coin; or `geometric`, with P(z) ∝ l^(peak-z) below the peak and
      ∝ r^(z-peak) from the peak on, where l = left_weight / RATIO_SUM, r = right_weight /
      RATIO_SUM, and z is conditioned on z ≤ most.

    Only bounded integers are drawn, so accounting uses the exact distribution.
    """

    law: ShufflerDistribution = "none"
    keep_weight: int = KEEP_SUM
    trials: int = 0
    peak: int = 0
    left_weight: int = 0
    right_weight: int = 0
    most: int = 0
    """Maximum number of dummies of one item."""

    def __post_init__(self) -> None:
        check_distribution(self, _ROWS, "the shuffler's dummies")
        if self.trials and self.most != self.trials:
            raise TaskError(
                f"trials is {self.trials} and most is {self.most}; for the distribution binomial "
                "they must be equal"
            )
        if self.most < self.peak:
            raise TaskError(
                f"peak is {self.peak} and most is {self.most}; it must be at least peak"
            )
        if self.draws_per_item > MAX_DRAWS:
            raise TaskError(
                f"one item would take {self.draws_per_item:.3g} draws with weights "
                f"{self.left_weight} and {self.right_weight}, peak {self.peak} and most "
                f"{self.most}; it may take at most {MAX_DRAWS}"
            )

    @property
    def geometric(self) -> bool:
        """Whether the numbers of dummies are two-sided geometric, not numbers of coins."""
        return self.law == "geometric"

    @property
    def draws_per_item(self) -> float:
        """
        Approximate number of bounded integers, or 64-bit words of fair bits, drawn for one item.

        A flank of ratio x takes 1/(1-x) draws on average; the result falls within the flank's
        length with probability 1 - x^length, and is drawn again otherwise.
        """
        if not self.geometric:
            return self.trials / _WORD_BITS
        sides = ((self.left_weight, self.peak), (self.right_weight, self.most - self.peak + 1))
        return sum(
            RATIO_SUM / (RATIO_SUM - weight) / -math.expm1(length * math.log(weight / RATIO_SUM))
            for weight, length in sides
            if length
        )

    @property
    def keep_probability(self) -> float:
        """Probability that a report is kept; exact."""
        return self.keep_weight / KEEP_SUM

    @property
    def only_permutes(self) -> bool:
        """Whether the shuffler only permutes."""
        return self.most == 0 and self.keep_weight == KEEP_SUM

    def batch_reports(self, sent: int, domain_size: int) -> tuple[int, int]:
        """
        Return bounds on the number of reports that the shuffler delivers, from the number sent.

        A number outside them shows that reports were lost or added: an honest shuffler's is outside
        them with probability at most 1e-12. By Chernoff's bound [BLM13, Section 2.2], a sum S is at
        least (log E[exp(h·S)] + L) / h with probability at most exp(-L), for every h > 0, and
        likewise below. Several h are tried, around the best one for a normal distribution.
        """
        if self.only_permutes:
            return sent, sent
        _, spread = self.moments()
        kept = self.keep_probability
        variance = max(1.0, sent * kept * (1 - kept) + domain_size * spread)
        exponent = math.log(2 / _FALSE_ALARM)
        steps = np.minimum(_MAX_STEP, math.sqrt(2 * exponent / variance) * _STEP_RATIOS)
        log_moment = self._log_moments()

        def bound(h: float) -> float:
            total = sent * math.log1p(kept * math.expm1(h)) + domain_size * log_moment(h)
            return (total + exponent) / h

        minimum = max(bound(-h) for h in steps.tolist())
        maximum = min(bound(h) for h in steps.tolist())
        return max(0, math.floor(minimum)), min(sent + domain_size * self.most, math.ceil(maximum))

    def _log_moments(self) -> Callable[[float], float]:
        """Return the function log E[exp(h·z)] of h."""
        if not self.geometric:
            return lambda h: self.trials * math.log1p(math.expm1(h) / 2)
        logs, z = self._log_weights(), np.arange(self.most + 1)
        total = log_sum(logs)
        return lambda h: log_sum(logs + h * z) - total

    def _log_weights(self) -> NDArray[np.float64]:
        """Return log P(z) of a geometric distribution for z = 0 .. most, up to a constant."""
        z = np.arange(self.most + 1, dtype=np.float64)
        left = math.log(self.left_weight / RATIO_SUM)
        right = math.log(self.right_weight / RATIO_SUM)
        return np.where(z < self.peak, (self.peak - z) * left, (z - self.peak) * right)

    def probabilities(self) -> NDArray[np.float64]:
        """Return P(z) of a geometric distribution for z = 0 .. most."""
        weights = np.exp(self._log_weights())
        distribution: NDArray[np.float64] = weights / weights.sum()
        return distribution

    def moments(self) -> tuple[float, float]:
        """Return the mean and the variance of z, the number of one item's dummies."""
        if not self.geometric:
            return self.trials / 2, self.trials / 4
        distribution, z = self.probabilities(), np.arange(self.most + 1)
        mean = float(distribution @ z)
        return mean, float(distribution @ (z - mean) ** 2)

    @property
    def summed(self) -> tuple[int, NDArray[np.int64], NDArray[np.float64]]:
        """Draws whose sum is z, up to a constant: their number, their values, and the chances."""
        if not self.geometric:
            return self.trials, np.ones(1, dtype=np.int64), np.array([1 / 2])
        return 1, np.arange(self.most + 1) - self.peak, self.probabilities()

    @property
    def words(self) -> str:
        """The distribution of the number of dummies of one item, in words."""
        if not self.geometric:
            return f"a binomial number ({self.trials} fair coins)"
        return (
            f"a two-sided geometric number (peak {self.peak}, ratios {self.left_weight} below and "
            f"{self.right_weight} above it, in {RATIO_SUM}, at most {self.most})"
        )

    # --- draws: run by the shuffler ---------------------------------------------------------------

    def draw_kept(self, n_reports: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """
        Draw which reports are kept, each independently with probability keep_weight / KEEP_SUM.

        Nothing is drawn if every report is kept. Shape (n_reports,).
        """
        if self.keep_weight == KEEP_SUM:
            return np.ones(n_reports, dtype=np.bool_)
        return rng.integers(0, KEEP_SUM, size=n_reports, dtype=np.int64) < self.keep_weight

    def draw_item_dummies(self, domain_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Draw the number of dummies of each item, independently.

        Returns counts of shape (domain_size,), each in 0 .. most. Cost: `draws_per_item` draws per
        item.
        """
        draw = self._two_sided_geometric if self.geometric else self._coins
        return draw(domain_size, rng)

    def _coins(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `count` numbers of heads among `trials` fair coins: the set bits of random words."""
        whole_words, rest = divmod(self.trials, _WORD_BITS)
        words = whole_words + (rest > 0)
        together = _WORDS_AT_ONCE // max(1, words)
        heads = np.empty(count, dtype=np.int64)
        for start in range(0, count, together):
            part = heads[start : start + together]
            bits = rng.integers(0, 2**_WORD_BITS, size=(len(part), words), dtype=np.uint64)
            if rest:
                bits[:, -1] &= np.uint64(2**rest - 1)
            part[:] = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
        return heads

    def _two_sided_geometric(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Draw `count` numbers with P(z) ∝ l^(peak-z) below the peak and ∝ r^(z-peak) from it on.

        By rejection: a fair coin proposes a side, and a geometric number is the distance j to the
        peak, with probability (1-r)·r^j for j ≥ 0 above and (1-l)·l^(j-1) for j ≥ 1 below.
        Proposals above are accepted with chance ∝ 1-l, those below ∝ l·(1-r): either way
        (1-l)·(1-r) times r^j or l^j remains. Numbers below 0 or above `most` are drawn again.
        """
        left, right = self.left_weight, self.right_weight
        chances = np.array([left * (RATIO_SUM - right), RATIO_SUM * (RATIO_SUM - left)])
        if self.peak == 0:
            chances[0] = 0  # no left flank: every proposal on the right is accepted
        drawn = np.full(count, -1, dtype=np.int64)
        while (open_ := np.flatnonzero(drawn < 0)).size:
            above = rng.integers(0 if self.peak else 1, 2, size=len(open_), dtype=np.int64)
            accepted = (
                rng.integers(0, chances.max(), size=len(open_), dtype=np.int64) < chances[above]
            )
            steps = np.empty(len(open_), dtype=np.int64)
            for side, weight in ((0, left), (1, right)):
                chosen = above == side
                steps[chosen] = _geometric(weight, int(chosen.sum()), rng)
            proposed = np.where(above == 1, self.peak + steps, self.peak - 1 - steps)
            fits = accepted & (proposed >= 0) & (proposed <= self.most)
            drawn[open_[fits]] = proposed[fits]
        return drawn


def _geometric(weight: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` numbers with P(j) = (1-x)·x^j for j ≥ 0, where x = weight / RATIO_SUM."""
    steps = np.zeros(count, dtype=np.int64)
    active = np.arange(count)
    while active.size:
        active = active[rng.integers(0, RATIO_SUM, size=len(active), dtype=np.int64) < weight]
        steps[active] += 1
    return steps


PERMUTE_ONLY: Final = ShufflerSpec()
"""A shuffler that only permutes."""
