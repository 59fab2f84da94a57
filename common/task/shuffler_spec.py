"""
Sampling and dummies by the shuffler [MSE25].

A distribution of the dummies is a class of this file, listed in `NOISES`. Every draw is exact: fair
bits, and bounded integers that numpy draws by rejection. A floating-point table of the distribution
would cut off its tail, on which the δ of the guarantee depends [MSE25].
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.protocols import ShufflerDistribution
from shuffledp.common.task.specs import check_fields, whole
from shuffledp.common.task.uniform_dummies import log_sum

KEEP_SUM: Final = 2**32
"""Denominator of keep_weight."""
RATIO_SUM: Final = 2**30
"""Denominator of a geometric distribution's weights; products of two stay below 2^63."""
MAX_PER_ITEM: Final = 2**24
"""Maximum number of dummies of one item."""
MAX_GEOMETRIC: Final = 2**20
"""Maximum number of dummies of one item for a geometric distribution, which is tabulated."""
MAX_DRAWS: Final = 2**20
"""Maximum expected number of draws for one item's dummies."""
_WORD_BITS: Final = 64
_WORDS_AT_ONCE: Final = 2**22
"""Maximum number of random words in memory: 32 MiB."""
_Ratio = Annotated[int, whole(1, RATIO_SUM - 1)]

Summed = tuple[tuple[int, NDArray[np.int64], NDArray[np.float64]], ...]
"""Draws whose sum is z, up to a constant: of each kind their number, values, and chances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BinomialNoise:
    """The number z of one item's dummies is that of heads in tosses of a fair coin."""

    distribution: ClassVar[ShufflerDistribution] = "binomial"

    trials: Annotated[int, whole(1, MAX_PER_ITEM)]

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def most(self) -> int:
        """Maximum of z."""
        return self.trials

    @property
    def draws_per_item(self) -> float:
        """Number of 64-bit words of fair bits drawn for one item."""
        return self.trials / _WORD_BITS

    def moments(self) -> tuple[float, float]:
        """Return the mean and the variance of z."""
        return self.trials / 2, self.trials / 4

    def log_moments(self) -> Callable[[float], float]:
        """Return the function log E[exp(h·z)] of h."""
        return lambda h: self.trials * math.log1p(math.expm1(h) / 2)

    @property
    def summed(self) -> Summed:
        """Tosses, which count 1 with probability 1/2."""
        return ((self.trials, np.ones(1, dtype=np.int64), np.array([1 / 2])),)

    @property
    def words(self) -> str:
        """The distribution of z, in words."""
        return f"a binomial number ({self.trials} fair coins)"

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `count` numbers z, shape (count,): the set bits of random words."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NoNoise(BinomialNoise):
    """No dummies: z is 0, and nothing is drawn."""

    distribution = "none"

    trials: int = field(default=0, init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometricNoise:
    """
    The number z of one item's dummies is two-sided geometric, and conditioned on z ≤ most.

    P(z) ∝ l^(peak-z) below the peak and ∝ r^(z-peak) from the peak on, where l = left_weight /
    RATIO_SUM and r = right_weight / RATIO_SUM.
    """

    distribution: ClassVar[ShufflerDistribution] = "geometric"

    peak: Annotated[int, whole(0, MAX_GEOMETRIC)] = 0
    left_weight: _Ratio
    right_weight: _Ratio
    most: Annotated[int, whole(1, MAX_GEOMETRIC)]
    """Maximum of z."""

    def __post_init__(self) -> None:
        check_fields(self)
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
    def draws_per_item(self) -> float:
        """
        Approximate number of bounded integers drawn for one item.

        A flank of ratio x takes 1/(1-x) draws on average; the result falls within the flank's
        length with probability 1 - x^length, and is drawn again otherwise.
        """
        sides = ((self.left_weight, self.peak), (self.right_weight, self.most - self.peak + 1))
        return sum(
            RATIO_SUM / (RATIO_SUM - weight) / -math.expm1(length * math.log(weight / RATIO_SUM))
            for weight, length in sides
            if length
        )

    def _log_weights(self) -> NDArray[np.float64]:
        """Return log P(z) for z = 0 .. most, up to a constant."""
        z = np.arange(self.most + 1, dtype=np.float64)
        left = math.log(self.left_weight / RATIO_SUM)
        right = math.log(self.right_weight / RATIO_SUM)
        return np.where(z < self.peak, (self.peak - z) * left, (z - self.peak) * right)

    def probabilities(self) -> NDArray[np.float64]:
        """Return P(z) for z = 0 .. most."""
        weights = np.exp(self._log_weights())
        distribution: NDArray[np.float64] = weights / weights.sum()
        return distribution

    def moments(self) -> tuple[float, float]:
        """Return the mean and the variance of z."""
        distribution, z = self.probabilities(), np.arange(self.most + 1)
        mean = float(distribution @ z)
        return mean, float(distribution @ (z - mean) ** 2)

    def log_moments(self) -> Callable[[float], float]:
        """Return the function log E[exp(h·z)] of h."""
        logs, z = self._log_weights(), np.arange(self.most + 1)
        total = log_sum(logs)
        return lambda h: log_sum(logs + h * z) - total

    @property
    def summed(self) -> Summed:
        """One draw: the distance to the peak."""
        return ((1, np.arange(self.most + 1) - self.peak, self.probabilities()),)

    @property
    def words(self) -> str:
        """The distribution of z, in words."""
        return (
            f"a two-sided geometric number (peak {self.peak}, ratios {self.left_weight} below and "
            f"{self.right_weight} above it, in {RATIO_SUM}, at most {self.most})"
        )

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Draw `count` numbers z, shape (count,).

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
            tried = rng.integers(0, chances.max(), size=len(open_), dtype=np.int64)
            steps = np.empty(len(open_), dtype=np.int64)
            for side, weight in ((0, left), (1, right)):
                chosen = above == side
                steps[chosen] = _geometric(weight, int(chosen.sum()), rng)
            proposed = np.where(above == 1, self.peak + steps, self.peak - 1 - steps)
            fits = (tried < chances[above]) & (proposed >= 0) & (proposed <= self.most)
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


@dataclass(frozen=True, slots=True)
class SummedNoise:
    """The number z is the sum of two geometric ones; a task states each, its shuffler's own."""

    distribution: ClassVar[ShufflerDistribution] = "geometric"

    parts: tuple[GeometricNoise, GeometricNoise]

    @property
    def most(self) -> int:
        """Maximum of z."""
        return sum(each.most for each in self.parts)

    @property
    def draws_per_item(self) -> float:
        """Approximate number of bounded integers drawn for one item."""
        return sum(each.draws_per_item for each in self.parts)

    def moments(self) -> tuple[float, float]:
        """Return the mean and the variance of z."""
        means, variances = zip(*(each.moments() for each in self.parts), strict=True)
        return sum(means), sum(variances)

    def log_moments(self) -> Callable[[float], float]:
        """Return the function log E[exp(h·z)] of h."""
        logs = [each.log_moments() for each in self.parts]
        return lambda h: sum(log(h) for log in logs)

    @property
    def summed(self) -> Summed:
        """One draw of each part."""
        return self.parts[0].summed + self.parts[1].summed

    @property
    def words(self) -> str:
        """The distribution of z, in words."""
        return " and ".join(each.words for each in self.parts)

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `count` numbers z, shape (count,)."""
        drawn: NDArray[np.int64] = np.sum([each.draw(count, rng) for each in self.parts], axis=0)
        return drawn


ItemNoise = NoNoise | BinomialNoise | GeometricNoise | SummedNoise
NOISES: Final[Mapping[str, type[ItemNoise]]] = {
    each.distribution: each for each in (NoNoise, BinomialNoise, GeometricNoise)
}
"""Distributions of the number of the shuffler's dummies of one item, by name."""
NO_NOISE: Final = NoNoise()


def sum_of(noises: Sequence[ItemNoise]) -> ItemNoise:
    """Return the distribution of the sum of independent numbers of one kind; coins add up."""
    if len(noises) == 1:
        return noises[0]
    geometric = [each for each in noises if isinstance(each, GeometricNoise)]
    if geometric:
        first, second = geometric
        return SummedNoise((first, second))
    return BinomialNoise(trials=sum(each.most for each in noises))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSampling:
    """The share of users' reports that a shuffler keeps [MSE25]."""

    keep_weight: Annotated[int, whole(1, KEEP_SUM)] = KEEP_SUM
    """Numerator of the probability that a report is kept; the denominator is KEEP_SUM."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def keep_probability(self) -> float:
        """Probability that a report is kept; exact."""
        return self.keep_weight / KEEP_SUM

    def draw_kept(self, n_reports: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """
        Draw which reports are kept, each independently with probability keep_weight / KEEP_SUM.

        Nothing is drawn if every report is kept. Shape (n_reports,). Run by the shuffler.
        """
        if self.keep_weight == KEEP_SUM:
            return np.ones(n_reports, dtype=np.bool_)
        return rng.integers(0, KEEP_SUM, size=n_reports, dtype=np.int64) < self.keep_weight


@dataclass(frozen=True, slots=True, kw_only=True)
class ShufflerSpec(ReportSampling):
    """
    Sampling and dummies by the shuffler [MSE25], of one view.

    After the batch has closed, the shuffler

    * keeps each user's report with probability keep_weight / KEEP_SUM, and
    * adds dummies that name an item, for each item independently; `noise` is the distribution of
      their number.

    Only bounded integers are drawn, so accounting uses the exact distribution.
    """

    noise: ItemNoise = NO_NOISE

    @property
    def only_permutes(self) -> bool:
        """Whether the shuffler only permutes."""
        return self.noise.most == 0 and self.keep_weight == KEEP_SUM

    def draw_item_dummies(self, domain_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Draw the number of dummies of each item, independently. Run by the shuffler.

        Returns counts of shape (domain_size,), each in 0 .. most. Cost: `draws_per_item` draws per
        item.
        """
        return self.noise.draw(domain_size, rng)


PERMUTE_ONLY: Final = ShufflerSpec()
"""A shuffler that only permutes."""
