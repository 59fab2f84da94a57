"""The distributions of the dummies that users and the shuffler add."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self, get_args

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.protocols import DummyDistribution, ShufflerDistribution
from common.task.cluster_spec import CHANCE_SUM, MAX_LENGTHS, ClusterSpec
from common.task.specs import check_choice, check_fields, check_int_range, whole

RANDOM_UNIFORM: Final = frozenset({"fractional", "binomial", "negative-binomial"})
"""Distributions of a random number of uniform dummies."""
MAX_DUMMIES: Final = 2**20
"""Maximum number of dummies of one user; no envelope holds more."""
MAX_TRIALS: Final = 2**24
"""Maximum of `trials`; `each-item` needs one trial for each item of the domain."""
EXTRA_WEIGHT_SUM: Final = CHANCE_SUM
"""Denominator of extra_weight."""
MAX_GEOMETRICS: Final = 2**16
"""Maximum number of geometric numbers that are summed to one negative binomial number."""

_MIN_ACCEPTANCE: Final = 2.0**-8
"""Minimum probability that a draw is accepted; below it, rejection sampling would take too long."""


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
    per_user: Annotated[int, whole(0, MAX_DUMMIES)]
    """Dummies that each user always adds."""
    trials: Annotated[int, whole(0, MAX_TRIALS)] = 0
    extra_weight: Annotated[int, whole(0, EXTRA_WEIGHT_SUM - 1)] = 0
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
        check_choice("the distribution of the dummies", self.law, get_args(DummyDistribution))
        check_fields(self)
        check_int_range("most", self.most, 0, MAX_DUMMIES - self.per_user)
        if (self.law == "clusters") != (self.clusters is not None):
            raise TaskError(
                f"the distribution of the dummies is {self.law}; the table [dummies.clusters] is "
                f"{'missing' if self.clusters is None else 'for the distribution clusters only'}"
            )
        if (self.law == "levels") != bool(self.levels):
            raise TaskError(
                f"the distribution of the dummies is {self.law} and levels has "
                f"{len(self.levels)} numbers; only the distribution levels has some"
            )
        for number in self.levels:
            check_int_range("a level's dummies", number, 0, MAX_DUMMIES * EXTRA_WEIGHT_SUM)
        if (self.law not in {"fixed", "clusters", "levels"}) != (self.extra_weight > 0):
            raise TaskError(
                f"extra_weight is {self.extra_weight} for the distribution {self.law}; it must be "
                "0 for fixed, clusters and levels, and above 0 otherwise"
            )
        if not isinstance(self.one_length, bool):
            raise TaskError("one_length must be true or false")
        if self.one_length and self.law not in RANDOM_UNIFORM:
            raise TaskError(
                f"one_length is true for the distribution {self.law}; only fractional, binomial "
                "and negative-binomial have a choice of lengths"
            )
        self._check_trials()
        self._check_drawing()

    def _check_trials(self) -> None:
        none = dict.fromkeys(("fixed", "clusters", "levels"), (0, 0))
        allowed = none | {"fractional": (1, 1), "binomial": (2, MAX_TRIALS)}
        minimum, maximum = allowed.get(self.law, (1, MAX_TRIALS))
        if not minimum <= self.trials <= maximum:
            raise TaskError(
                f"trials is {self.trials} for the distribution {self.law}; it must be 0 for "
                "fixed, clusters and levels, 1 for fractional, at least 2 for binomial and at "
                "least 1 otherwise"
            )
        if self.bounded and self.most != self.trials:
            raise TaskError(
                f"most is {self.most} and trials is {self.trials}; they must be equal for the "
                f"distribution {self.law}"
            )
        if not self.uniform and self.per_user:
            raise TaskError(
                f"per_user is {self.per_user}; it must be 0 for the distribution {self.law}"
            )
        if not self.bounded and self.most < 1:
            raise TaskError(
                f"most is {self.most}; it must be at least 1 for the distribution {self.law}"
            )

    def _check_drawing(self) -> None:
        """Check that a device can draw from the distribution quickly, or raise TaskError."""
        if not self.bounded and self._log_probability_of_most() < math.log(_MIN_ACCEPTANCE):
            raise TaskError(
                f"most is {self.most} for a distribution with mean "
                f"{self.expected_per_user - self.per_user:.4g}; too many draws would be rejected"
            )
        if self.law == "negative-binomial" and self.trials > MAX_GEOMETRICS:
            raise TaskError(
                f"trials is {self.trials} for the distribution {self.law}; it must be at most "
                f"{MAX_GEOMETRICS}"
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
        fields.setdefault("one_length", fields["law"] in RANDOM_UNIFORM)
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
        return self.law in {"fixed", "fractional", "binomial", "clusters", "levels"}

    @property
    def uniform(self) -> bool:
        """Whether dummies are uniform reports; if not, each names an item, or a level's node."""
        return self.law not in {"each-item", "clusters", "levels"}

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
        numbers = np.exp(logs - _log_sum(logs))
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


NO_DUMMIES: Final = DummySpec(law="fixed", per_user=0)


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
    keep_weight: Annotated[int, whole(1, KEEP_SUM)] = KEEP_SUM
    trials: Annotated[int, whole(0, MAX_PER_ITEM)] = 0
    peak: Annotated[int, whole(0, MAX_PER_ITEM)] = 0
    left_weight: Annotated[int, whole(0, RATIO_SUM - 1)] = 0
    right_weight: Annotated[int, whole(0, RATIO_SUM - 1)] = 0
    most: Annotated[int, whole(0, MAX_PER_ITEM)] = 0
    """Maximum number of dummies of one item."""

    def __post_init__(self) -> None:
        check_choice(
            "the distribution of the shuffler's dummies", self.law, get_args(ShufflerDistribution)
        )
        check_fields(self)
        binomial, geometric = self.law == "binomial", self.law == "geometric"
        if (self.trials > 0) != binomial or (binomial and self.most != self.trials):
            raise TaskError(
                f"trials is {self.trials} and most is {self.most} for the distribution {self.law}; "
                "they must be equal and above 0 for binomial, and trials must be 0 otherwise"
            )
        flanks = self.left_weight > 0 and self.right_weight > 0
        if geometric and not (flanks and self.most >= max(1, self.peak)):
            raise TaskError(
                f"left_weight is {self.left_weight}, right_weight is {self.right_weight}, peak is "
                f"{self.peak} and most is {self.most}; for geometric both weights must be above 0, "
                "and most at least 1 and at least peak"
            )
        if geometric:
            check_int_range("most", self.most, 1, MAX_GEOMETRIC)
        if self.draws_per_item > MAX_DRAWS:
            raise TaskError(
                f"one item would take {self.draws_per_item:.3g} draws with weights "
                f"{self.left_weight} and {self.right_weight}, peak {self.peak} and most "
                f"{self.most}; it may take at most {MAX_DRAWS}"
            )
        if not geometric and (self.peak or self.left_weight or self.right_weight):
            raise TaskError(
                f"peak is {self.peak}, left_weight is {self.left_weight} and right_weight is "
                f"{self.right_weight}; all must be 0 unless the distribution is geometric"
            )
        if self.law == "none" and self.most:
            raise TaskError(f"most is {self.most}; it must be 0 where the shuffler adds no dummies")

    @property
    def draws_per_item(self) -> float:
        """
        Approximate number of bounded integers, or 64-bit words of fair bits, drawn for one item.

        A flank of ratio x takes 1/(1-x) draws on average; the result falls within the flank's
        length with probability 1 - x^length, and is drawn again otherwise.
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
    def keep_probability(self) -> float:
        """Probability that a report is kept; exact."""
        return self.keep_weight / KEEP_SUM

    @property
    def only_permutes(self) -> bool:
        """Whether the shuffler only permutes."""
        return self.law == "none" and self.keep_weight == KEEP_SUM

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
        if self.law == "none":
            return lambda _: 0.0
        if self.law == "binomial":
            return lambda h: self.trials * math.log1p(math.expm1(h) / 2)
        logs, z = self._log_weights(), np.arange(self.most + 1)
        total = _log_sum(logs)
        return lambda h: _log_sum(logs + h * z) - total

    def _log_weights(self) -> NDArray[np.float64]:
        """Return log P(z) of a geometric distribution for z = 0 .. most, up to a constant."""
        z = np.arange(self.most + 1, dtype=np.float64)
        left = math.log(self.left_weight / RATIO_SUM)
        right = math.log(self.right_weight / RATIO_SUM)
        return np.where(z < self.peak, (self.peak - z) * left, (z - self.peak) * right)

    def probabilities(self) -> NDArray[np.float64]:
        """Return P(z) for z = 0 .. most, if geometric; otherwise raise ValueError."""
        if self.law != "geometric":
            raise ValueError(f"the distribution is {self.law}; it must be geometric")
        weights = np.exp(self._log_weights())
        distribution: NDArray[np.float64] = weights / weights.sum()
        return distribution

    def moments(self) -> tuple[float, float]:
        """Return the mean and the variance of z, the number of one item's dummies."""
        if self.law == "none":
            return 0.0, 0.0
        if self.law == "binomial":
            return self.trials / 2, self.trials / 4
        distribution, z = self.probabilities(), np.arange(self.most + 1)
        mean = float(distribution @ z)
        return mean, float(distribution @ (z - mean) ** 2)


def _log_sum(logs: NDArray[np.float64]) -> float:
    """Return the logarithm of the sum of the exponentials of `logs`."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


PERMUTE_ONLY: Final = ShufflerSpec()
"""A shuffler that only permutes."""
