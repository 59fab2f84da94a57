"""Uniform dummies: a fixed number of them for each user, and a random number more."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.protocols import DummyDistribution
from shuffledp.common.task import dummies, specs

MAX_GEOMETRICS: Final = 2**16
"""Maximum number of geometric numbers that are summed to one negative binomial number."""
_Weight = Annotated[int, specs.whole(1, dummies.EXTRA_WEIGHT_SUM - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformDummies(dummies.Dummies):
    """
    `per_user` uniform dummies, plus a random number of them.

    A submission may show how many there are (docs/theory/accounting.md#lengths).
    """

    uniform = True

    per_user: Annotated[int, specs.whole(0, dummies.MAX_DUMMIES)]
    trials: Annotated[int, specs.whole(2, dummies.MAX_TRIALS)]
    extra_weight: _Weight
    """Numerator of the probability or ratio; the denominator is EXTRA_WEIGHT_SUM."""
    one_length: Annotated[bool, specs.check_truth] = False
    """Whether submissions are padded to one length."""

    def __post_init__(self) -> None:
        specs.check_fields(self)
        specs.check_int_range("most", self.most, 0, dummies.MAX_DUMMIES - self.per_user)

    @property
    @abstractmethod
    def most(self) -> int:
        """Maximum of the random number."""

    @abstractmethod
    def _draw_more(self, n_users: int, rng: Generator) -> dummies.Numbers:
        """Draw each user's random number, shape (n_users,), from 0 to `most`."""

    @abstractmethod
    def _ratios(self, k: dummies.Numbers) -> NDArray[np.float64]:
        """Return P(k + 1) / P(k) of the random number."""

    @property
    def extra_probability(self) -> float:
        """extra_weight / EXTRA_WEIGHT_SUM; from 0 to below 1, exact."""
        return self.extra_weight / dummies.EXTRA_WEIGHT_SUM

    @property
    def lengths(self) -> tuple[int, ...]:
        """Numbers of dummies, padding included, by `every_kth`; for one length the maximum."""
        most = self.per_user + self.most
        return dummies.every_kth(most if self.one_length else self.per_user, most)

    def length_probabilities(self) -> NDArray[np.float64]:
        if len(self.lengths) == 1:
            return np.ones(1)
        logs = np.cumsum([0.0, *np.log(self._ratios(np.arange(self.most)))])  # log P(k) - log P(0)
        return self.by_length(np.exp(logs - log_sum(logs)))

    def draw_numbers(self, n_users: int, rng: Generator) -> dummies.Numbers:
        """Draw each user's number of dummies, shape (n_users,), from per_user to `maximum`."""
        return self.per_user + self._draw_more(n_users, rng)

    def draw(self, mechanism: dummies.ItemMechanism, n_users: int, rng: Generator) -> dummies.Drawn:
        numbers = self.draw_numbers(n_users, rng)
        return numbers, mechanism.dummies(int(numbers.sum()), rng)

    def sample(
        self, mechanism: dummies.ItemMechanism, users: dummies.Numbers, rng: Generator
    ) -> dummies.Sampled:
        n_users = int(users.sum())
        total = int(self.draw_numbers(n_users, rng).sum())
        return mechanism.sample_cells(users, total, rng), n_users + total

    @property
    def words(self) -> str:
        return f"uniform dummies, {self.per_user} each"


@dataclass(frozen=True, slots=True, kw_only=True)
class BinomialDummies(UniformDummies):
    """The random number is that of successes in `trials` draws with extra_probability."""

    distribution: ClassVar[DummyDistribution] = "binomial"

    @property
    def most(self) -> int:
        return self.trials

    @property
    def expected_per_user(self) -> float:
        return self.per_user + self.trials * self.extra_probability

    def _draw_more(self, n_users: int, rng: Generator) -> dummies.Numbers:
        numbers = np.zeros(n_users, dtype=np.int64)
        for _ in range(self.trials):
            numbers += dummies.successes(self.extra_weight, n_users, rng)
        return numbers

    def _ratios(self, k: dummies.Numbers) -> NDArray[np.float64]:
        chance = self.extra_probability
        return np.asarray((self.trials - k) / (k + 1) * chance / (1 - chance))

    @property
    def words(self) -> str:
        return (
            f"{super(BinomialDummies, self).words}, plus a binomial number ({self.trials} trials, "
            f"{dummies.chance_words(self.extra_weight)}), drawn independently"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FractionalDummies(BinomialDummies):
    """The random number is 1 with extra_probability, and otherwise 0."""

    distribution = "fractional"

    trials: int = field(default=1, init=False)

    @property
    def words(self) -> str:
        more = f"uniform dummies, {self.per_user} each and one more"
        return (
            f"{more if self.per_user else 'one uniform dummy'} with "
            f"{dummies.chance_words(self.extra_weight)}, drawn independently"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDummies(BinomialDummies):
    """No further dummies; a fixed number takes no draws."""

    distribution = "fixed"

    trials: int = field(default=0, init=False)
    extra_weight: int = field(default=0, init=False)
    one_length: bool = field(default=False, init=False)

    @property
    def words(self) -> str:
        return super(BinomialDummies, self).words


@dataclass(frozen=True, slots=True, kw_only=True)
class NegativeBinomialDummies(UniformDummies):
    """
    The random number is the sum of `trials` geometric numbers with ratio extra_probability [CC24].

    It is conditioned on being at most `most`: a larger one is drawn again. Accounting uses the
    conditional distribution.
    """

    distribution = "negative-binomial"

    trials: Annotated[int, specs.whole(1, MAX_GEOMETRICS)]
    most: Annotated[int, specs.whole(1, dummies.MAX_DUMMIES)] = field()

    def __post_init__(self) -> None:
        super(NegativeBinomialDummies, self).__post_init__()
        n, k, chance = self.trials, self.most, self.extra_probability
        ways = math.lgamma(n + k) - math.lgamma(n) - math.lgamma(k + 1)
        log_probability = ways + n * math.log1p(-chance) + k * math.log(chance)
        dummies.check_acceptance(self.expected_per_user - self.per_user, k, log_probability)
        dummies.check_expected(self.expected_per_user)

    @property
    def expected_per_user(self) -> float:
        chance = self.extra_probability
        return self.per_user + self.trials * chance / (1 - chance)

    def _draw_more(self, n_users: int, rng: Generator) -> dummies.Numbers:
        numbers, over = np.zeros(n_users, dtype=np.int64), np.ones(n_users, dtype=np.bool_)
        while over.any():
            numbers[over] = self._sums(int(over.sum()), rng)
            over = numbers > self.most
        return numbers

    def _sums(self, n_users: int, rng: Generator) -> dummies.Numbers:
        """Draw each user's sum of geometric numbers: of successes before a failure."""
        total = np.zeros(n_users, dtype=np.int64)
        users = np.repeat(np.arange(n_users), self.trials)
        while len(users):
            users = users[dummies.successes(self.extra_weight, len(users), rng)]
            total += np.bincount(users, minlength=n_users)
        return total

    def _ratios(self, k: dummies.Numbers) -> NDArray[np.float64]:
        return np.asarray((self.trials + k) / (k + 1) * self.extra_probability)

    @property
    def words(self) -> str:
        return (
            f"{super(NegativeBinomialDummies, self).words}, plus a negative binomial number (r = "
            f"{self.trials}, continuing with {dummies.chance_words(self.extra_weight)}), drawn "
            f"independently, redrawn above {self.most}"
        )


NO_DUMMIES: Final = FixedDummies(per_user=0)


def averaging(dummies_per_user: float) -> BinomialDummies:
    """
    Return the distribution of uniform dummies with this mean and the least variance.

    A mean of 1.3 gives one dummy, and a second with probability .3. The probability is rounded to a
    multiple of 1 / EXTRA_WEIGHT_SUM. Run by the analyzer. Raises TaskError if the mean is not in
    0 .. MAX_DUMMIES.
    """
    if not 0 <= dummies_per_user <= dummies.MAX_DUMMIES:
        raise TaskError(
            f"dummies_per_user is {dummies_per_user}; it must lie between 0 and "
            f"{dummies.MAX_DUMMIES}"
        )
    certain = math.floor(dummies_per_user)
    more = round((dummies_per_user - certain) * dummies.EXTRA_WEIGHT_SUM)
    return of_mean(certain * dummies.EXTRA_WEIGHT_SUM + more)


def of_mean(weight: int) -> BinomialDummies:
    """Return a fixed or fractional number with the mean weight / EXTRA_WEIGHT_SUM."""
    certain, extra = divmod(weight, dummies.EXTRA_WEIGHT_SUM)
    if extra:
        return FractionalDummies(per_user=certain, extra_weight=extra)
    return FixedDummies(per_user=certain)


def log_sum(logs: NDArray[np.float64]) -> float:
    """Return the logarithm of the sum of the exponentials of `logs`."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))
