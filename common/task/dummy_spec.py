"""
The dummies that users add: their distribution, its checks, draws and words.

A distribution is added as a row of `_ROWS`, and in the methods of this file that differ. No other
file asks for its name.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.protocols import DummyDistribution
from common.task.cluster_spec import CHANCE_SUM, MAX_LENGTHS, ClusterSpec
from common.task.shuffler_spec import log_sum
from common.task.specs import Rules, check_distribution, check_int_range, whole

MAX_DUMMIES: Final = 2**20
"""Maximum number of dummies of one user; no envelope holds more."""
MAX_TRIALS: Final = 2**24
"""Maximum of `trials`; `each-item` needs one trial for each item of the domain."""
EXTRA_WEIGHT_SUM: Final = CHANCE_SUM
"""Denominator of extra_weight."""
MAX_GEOMETRICS: Final = 2**16
"""Maximum number of geometric numbers that are summed to one negative binomial number."""

Drawn = tuple[NDArray[np.int64], NDArray[np.void]]
"""The number of each user's dummies, shape (n_users,), and the dummies, user by user."""

_MIN_ACCEPTANCE: Final = 2.0**-8
"""Minimum probability that a draw is accepted; below it, rejection sampling would take too long."""


def _check_truth(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TaskError(f"{name} must be true or false")


def _check_clusters(name: str, table: object) -> None:
    if table is None:
        raise TaskError(f"the distribution clusters needs the table [dummies.{name}]")


def _check_levels(name: str, numbers: Sequence[int]) -> None:
    if not numbers:
        raise TaskError(f"{name} is empty; the distribution levels needs a number for each level")
    for number in numbers:
        check_int_range("a level's dummies", number, 0, MAX_DUMMIES * EXTRA_WEIGHT_SUM)


_NAMED: Final = {"per_user": whole(0, 0)}
_COINS: Final = {
    "extra_weight": whole(1, EXTRA_WEIGHT_SUM - 1),
    "trials": whole(1, MAX_TRIALS),
    "most": whole(1, MAX_DUMMIES),
}
_UNIFORM: Final = {"per_user": whole(0, MAX_DUMMIES)}
_RANDOM: Final = {**_UNIFORM, **_COINS, "one_length": _check_truth}
_ROWS: Final[Mapping[str, Rules]] = {
    "fixed": _UNIFORM,
    "fractional": {**_RANDOM, "trials": whole(1, 1)},
    "binomial": {**_RANDOM, "trials": whole(2, MAX_TRIALS)},
    "negative-binomial": {**_RANDOM, "trials": whole(1, MAX_GEOMETRICS)},
    "each-item": {**_NAMED, **_COINS},
    "clusters": {**_NAMED, "clusters": _check_clusters},
    "levels": {**_NAMED, "levels": _check_levels},
}
"""Rules of each distribution's numbers; all others have their defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DummySpec:
    """
    Distribution of the number of dummies that each user adds: `per_user`, plus a random number.

    Each user draws the random number independently of the value, from bounded integers only:

    * `fixed`: no further dummies;
    * `fractional`: one more with probability extra_weight / EXTRA_WEIGHT_SUM;
    * `binomial`: the number of successes in `trials` draws with that probability;
    * `negative-binomial`: the sum of `trials` geometric numbers with that ratio [CC24];
    * `each-item`: a dummy that names the item, with that probability, for each of the `trials`
      items of the domain [BC20];
    * `clusters`: positive and negative reports of random items; see `ClusterSpec`;
    * `levels`: for each level of a hierarchy, a fixed or fractional number of uniform nodes.

    The first four add uniform reports. A negative binomial number, and the number of dummies of
    `each-item`, are conditioned on being at most `most`: a larger one is drawn again. Accounting
    uses the conditional distribution.
    """

    law: DummyDistribution
    per_user: int
    """Dummies that each user always adds."""
    trials: int = 0
    extra_weight: int = 0
    """Numerator of the probability or ratio; 0 .. EXTRA_WEIGHT_SUM-1."""
    most: int = 0
    """Maximum number of dummies beyond per_user."""
    clusters: ClusterSpec | None = None
    """Only for the distribution `clusters`."""
    one_length: bool = False
    """Whether submissions with a random number of uniform dummies are padded to one length."""
    levels: tuple[int, ...] = ()
    """Only for `levels`: average number of dummies of each level, the coarsest first, in units of
    1 / EXTRA_WEIGHT_SUM."""

    def __post_init__(self) -> None:
        check_distribution(self, _ROWS, "the dummies")
        check_int_range("most", self.most, 0, MAX_DUMMIES - self.per_user)
        if self.bounded and self.most != self.trials:
            raise TaskError(
                f"most is {self.most} and trials is {self.trials}; they must be equal for the "
                f"distribution {self.law}"
            )
        if not self.bounded and self._log_probability_of_most() < math.log(_MIN_ACCEPTANCE):
            raise TaskError(
                f"most is {self.most} for a distribution with mean "
                f"{self.expected_per_user - self.per_user:.4g}; too many draws would be rejected"
            )
        if self.expected_per_user > MAX_DUMMIES:
            raise TaskError(
                f"the expected number of dummies per user is {self.expected_per_user:.4g}; it must "
                f"be at most {MAX_DUMMIES}"
            )

    def _log_probability_of_most(self) -> float:
        """Return ln P(X = most), below ln P(X ≤ most); or 0 if the mean is at most `most`."""
        n, k, chance = self.trials, self.most, self.extra_probability
        if self.expected_per_user - self.per_user <= k:
            return 0.0
        if self.law == "negative-binomial":
            ways = math.lgamma(n + k) - math.lgamma(n) - math.lgamma(k + 1)
            return ways + n * math.log1p(-chance) + k * math.log(chance)
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        return ways + k * math.log(chance) + (n - k) * math.log1p(-chance)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """Parse the fields of a task; raise the errors of parsing arbitrary bytes."""
        clusters = fields.pop("clusters", None)
        if clusters is not None:
            fields["clusters"] = ClusterSpec(
                clusters=tuple(map(tuple, clusters.pop("clusters"))),
                rooms=tuple(map(tuple, clusters.pop("rooms"))),
                **clusters,
            )
        fields.setdefault("one_length", "one_length" in _ROWS.get(fields["law"], ()))
        fields["levels"] = tuple(fields.get("levels", ()))
        return cls(**fields)

    @classmethod
    def averaging(cls, dummies_per_user: float) -> Self:
        """
        Return the distribution of dummies with this mean and the least variance.

        A mean of 1.3 gives one dummy, and a second with probability .3. The probability is rounded
        to a multiple of 1 / EXTRA_WEIGHT_SUM. A whole number gives `fixed`. Run by the analyzer.
        Raises TaskError if the mean is not in 0 .. MAX_DUMMIES.
        """
        if not 0 <= dummies_per_user <= MAX_DUMMIES:
            raise TaskError(
                f"dummies_per_user is {dummies_per_user}; it must lie between 0 and {MAX_DUMMIES}"
            )
        certain = math.floor(dummies_per_user)
        more = round((dummies_per_user - certain) * EXTRA_WEIGHT_SUM)
        return cls._of_mean(certain * EXTRA_WEIGHT_SUM + more)

    @classmethod
    def _of_mean(cls, weight: int) -> Self:
        """Return a fixed or fractional number with the mean weight / EXTRA_WEIGHT_SUM."""
        certain, extra = divmod(weight, EXTRA_WEIGHT_SUM)
        law: DummyDistribution = "fractional" if extra else "fixed"
        drawn = int(extra > 0)
        return cls(law=law, per_user=certain, trials=drawn, extra_weight=extra, most=drawn)

    @classmethod
    def by_level(cls, dummies_per_user: float, sizes: Sequence[int]) -> Self:
        """
        Return dummies with this total mean, as many for each node of a hierarchy's levels.

        `sizes` are the levels' numbers of nodes. Run by the analyzer. Errors: `averaging`.
        """
        each = dummies_per_user / sum(sizes)
        levels = [cls.averaging(each * size) for size in sizes]
        return cls(
            law="levels",
            per_user=0,
            levels=tuple(each.per_user * EXTRA_WEIGHT_SUM + each.extra_weight for each in levels),
        )

    @property
    def each_level(self) -> tuple["DummySpec", ...]:
        """The dummies of each level, fixed or fractional; empty for other distributions."""
        return tuple(map(self._of_mean, self.levels))

    @property
    def bounded(self) -> bool:
        """Whether the number of dummies is drawn without conditioning on `most`."""
        return self.law not in {"negative-binomial", "each-item"}

    @property
    def uniform(self) -> bool:
        """Whether dummies are uniform reports; if not, each names an item, or a level's node."""
        return self.law not in {"each-item", "clusters", "levels"}

    @property
    def random(self) -> bool:
        """Whether a random number of uniform dummies is added."""
        return self.uniform and self.trials > 0

    @property
    def item_chance(self) -> float:
        """Probability that a user adds a dummy of one item; 0 unless dummies name each item."""
        return self.extra_probability if self.law == "each-item" else 0.0

    @property
    def certain(self) -> int:
        """Number of dummies that each user always adds, at all levels together."""
        return self.per_user + sum(each.per_user for each in self.each_level)

    @property
    def maximum(self) -> int:
        """Maximum number of dummies of one user; for clusters, null reports included."""
        if self.clusters is not None:
            return self.clusters.lengths[-1]
        return self.per_user + self.most + sum(each.maximum for each in self.each_level)

    @property
    def lengths(self) -> tuple[int, ...]:
        """
        Numbers of dummies, padding included, that a submission may have; ascending.

        Every number from per_user to `maximum`; of more than MAX_LENGTHS numbers every k-th, down
        from `maximum`. Uniform dummies may show their number (docs/theory/accounting.md#lengths);
        for `each-item` it would reveal a little, so there is one length, as with `one_length`.
        """
        if self.clusters is not None:
            return self.clusters.lengths
        if self.levels:
            return tuple(range(self.certain, self.maximum + 1))
        shown = self.uniform and not self.one_length
        step = self.most // MAX_LENGTHS + 1 if shown else self.most + 1
        return tuple(range(self.per_user + self.most % step, self.maximum + 1, step))

    def length_probabilities(self) -> NDArray[np.float64]:
        """Return the probability of each of the `lengths`; same shape."""
        if self.clusters is not None:
            return self.clusters.length_probabilities()
        if self.levels:
            total = np.ones(1)
            for each in self.each_level:
                total = np.convolve(total, each.length_probabilities())
            return total
        lengths = np.array(self.lengths)
        if len(lengths) == 1:
            return np.ones(1)
        k, chance = np.arange(self.most), self.extra_probability
        if self.law == "negative-binomial":
            ratios = (self.trials + k) / (k + 1) * chance
        else:
            ratios = (self.trials - k) / (k + 1) * chance / (1 - chance)
        logs = np.cumsum([0.0, *np.log(ratios)])  # log P(k) - log P(0)
        numbers = np.exp(logs - log_sum(logs))
        chances: NDArray[np.float64] = np.add.reduceat(
            numbers, np.concatenate([[0], lengths[:-1] + 1 - self.per_user])
        )
        return chances

    @property
    def expected_sent(self) -> float:
        """Average number of dummies of one user, and of the null reports that fill rooms."""
        return self.expected_per_user if self.clusters is None else self.clusters.expected_length

    @property
    def expected_per_user(self) -> float:
        """Average number of dummies of one user, before conditioning on `most`; nulls excluded."""
        if self.clusters is not None:
            return self.clusters.expected_reports
        if self.levels:
            return sum(self.levels) / EXTRA_WEIGHT_SUM
        chance = self.extra_probability
        if self.law == "negative-binomial":
            return self.per_user + self.trials * chance / (1 - chance)
        return self.per_user + self.trials * chance

    @property
    def extra_probability(self) -> float:
        """extra_weight / EXTRA_WEIGHT_SUM; from 0 to below 1, exact."""
        return self.extra_weight / EXTRA_WEIGHT_SUM

    @property
    def words(self) -> str:
        """What each user adds, to follow "and add" in the sentence of a guarantee."""
        if self.clusters is not None:
            return (
                "clusters of positive and negative reports of random items as the task's table "
                f"says, {self.expected_per_user:.4g} reports on average"
            )
        if self.levels:
            numbers = ", ".join(f"{each.expected_per_user:.4g}" for each in self.each_level)
            return (
                f"uniform dummies of each level, {numbers} on average from the coarsest on, the "
                "fractions by independent draws"
            )
        certain, redrawn = f"uniform dummies, {self.per_user} each", f"redrawn above {self.most}"
        if self.law == "fixed":
            return certain
        chance = f"probability {self.extra_probability:.6g} "
        chance += f"({self.extra_weight} in {EXTRA_WEIGHT_SUM})"
        more = {
            "each-item": f"a dummy of each item with {chance}",
            "fractional": f"{certain} and one more with {chance}"
            if self.per_user
            else f"one uniform dummy with {chance}",
            "binomial": f"{certain}, plus a binomial number ({self.trials} trials, {chance})",
            "negative-binomial": f"{certain}, plus a negative binomial number (r = {self.trials}, "
            f"continuing with {chance})",
        }[self.law]
        of_all = " in all" if self.law == "each-item" else ""
        return f"{more}, drawn independently" + ("" if self.bounded else f", {redrawn}{of_all}")

    # --- draws: run by the user agent for one user, and by simulations for many -------------------

    def draw(self, mechanism: Any, n_users: int, rng: np.random.Generator) -> Drawn:  # noqa: ANN401
        """
        Draw users' dummies as reports of a mechanism for items, independently of their values.

        Clusters include null reports that fill their rooms, so that the length shows the rooms
        alone.
        """
        if self.uniform:
            numbers = self.draw_numbers(n_users, rng)
            return numbers, mechanism.dummies(int(numbers.sum()), rng)
        if self.levels:
            by_level = np.array([each.draw_numbers(n_users, rng) for each in self.each_level])
            users = np.concatenate([np.repeat(np.arange(n_users), level) for level in by_level])
            reports = mechanism.level_dummies(by_level.sum(axis=1).tolist(), rng)
            return by_level.sum(axis=0), reports[np.argsort(users, kind="stable")]
        if self.clusters is not None:
            drawn = [mechanism.draw_clusters(rng) for _ in range(n_users)]
        else:
            drawn = [mechanism.randomize(self._draw_items(rng), rng) for _ in range(n_users)]
        return np.array([len(each) for each in drawn], dtype=np.int64), np.concatenate(drawn)

    def draw_numbers(self, n_users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Draw each user's number of uniform dummies, shape (n_users,), from per_user to `maximum`.

        A trial draws a bounded integer and succeeds if it is below extra_weight; a fixed number of
        dummies takes no draws.
        """
        numbers = np.zeros(n_users, dtype=np.int64)
        if self.bounded:
            for _ in range(self.trials):
                numbers += self._successes(n_users, rng)
            return self.per_user + numbers
        over = np.ones(n_users, dtype=np.bool_)
        while over.any():
            numbers[over] = self._negative_binomial(int(over.sum()), rng)
            over = numbers > self.most
        return self.per_user + numbers

    def _negative_binomial(self, n_users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw each user's sum of `trials` geometric numbers: of successes before a failure."""
        total = np.zeros(n_users, dtype=np.int64)
        users = np.repeat(np.arange(n_users), self.trials)
        while len(users):
            users = users[self._successes(len(users), rng)]
            total += np.bincount(users, minlength=n_users)
        return total

    def _draw_items(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the items that one user's dummies name; all again if there are too many."""
        while True:
            items = np.flatnonzero(self._successes(self.trials, rng))
            if len(items) <= self.most:
                return items

    def _successes(self, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        return rng.integers(0, EXTRA_WEIGHT_SUM, size=count, dtype=np.int64) < self.extra_weight


NO_DUMMIES: Final = DummySpec(law="fixed", per_user=0)
