"""The law of the users' dummies: how many come with each user's report, and what they are."""

import math
from dataclasses import dataclass
from typing import Final, Self, get_args

from common.errors import TaskError
from common.protocols import DummyLaw
from common.task.ranges import one_of, within

MAX_DUMMIES: Final = 2**20
"""Most dummies of one user; no envelope holds more."""
MAX_TRIALS: Final = 2**24
"""A domain has no more items."""
MAX_GEOMETRICS: Final = 2**16
"""Most geometric numbers that a negative binomial one is added up from."""
EXTRA_WEIGHT_SUM: Final = 2**32
"""What an extra_weight is a share of."""

_LEAST_CHANCE: Final = 2.0**-8
"""Laws that come to their largest number more seldom than this, and to less yet more seldom, would
be drawn for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DummySpec:
    """
    How many dummies come with each user's report: `per_user` for certain, and more by a law.

    Every law is drawn from bounded integers alone, by each user apart and whatever the value:

    * `fixed`: no more;
    * `fractional`: one more with probability extra_weight / EXTRA_WEIGHT_SUM;
    * `binomial`: as many more as of `trials` such chances come true;
    * `negative-binomial`: `trials` geometric numbers, each of which goes on with that chance,
      added up [CC24];
    * `each-item`: one dummy naming each item, each with that chance; `trials` is the domain size
      [BC20]. The others' dummies are uniform reports.

    The last two are conditioned on at most `most`: a larger draw is drawn again. The law so
    conditioned is the one that is accounted.
    """

    law: DummyLaw
    per_user: int
    """Dummies that each user adds for certain."""
    trials: int = 0
    extra_weight: int = 0
    """Of the chance above; 0 .. EXTRA_WEIGHT_SUM-1."""
    most: int = 0
    """The most dummies beyond per_user; submissions are padded to it."""

    def __post_init__(self) -> None:
        one_of("the law of the dummies", self.law, get_args(DummyLaw))
        within("dummies per user", self.per_user, 0, MAX_DUMMIES)
        within("the trials of the dummies", self.trials, 0, MAX_TRIALS)
        within("extra_weight", self.extra_weight, 0, EXTRA_WEIGHT_SUM - 1)
        within("the most dummies", self.most, 0, MAX_DUMMIES - self.per_user)
        if (self.law != "fixed") != (self.extra_weight > 0):
            raise TaskError(
                f"the law of the dummies is {self.law} and extra_weight is {self.extra_weight}; "
                "it is 0 for the law fixed, and above 0 for every other law"
            )
        self._check_trials()
        self._check_drawing()

    def _check_trials(self) -> None:
        least = {"fixed": 0, "fractional": 1, "binomial": 2}.get(self.law, 1)
        if self.trials < least or (least < 2 and self.bounded and self.trials > least):  # noqa: PLR2004  # the binomial
            raise TaskError(
                f"the law of the dummies is {self.law} and trials is {self.trials}; it is 0 for "
                "fixed, 1 for fractional, at least 2 for binomial and at least 1 otherwise"
            )
        if self.bounded and self.most != self.trials:
            raise TaskError(
                f"most is {self.most} and trials is {self.trials}; they are the same for the law "
                f"{self.law}"
            )
        if not self.uniform and self.per_user:
            raise TaskError(
                f"dummies per user is {self.per_user}; it is 0 for the law each-item, which names "
                "each item at most once"
            )
        if not self.bounded and self.most < 1:
            raise TaskError(f"most is {self.most}; it must be at least 1 for the law {self.law}")

    def _check_drawing(self) -> None:
        """Refuse laws that a device could not draw from in time."""
        if not self.bounded and self._log_chance_of_most() < math.log(_LEAST_CHANCE):
            raise TaskError(
                f"most is {self.most} for a law of mean "
                f"{self.expected_per_user - self.per_user:.4g}: dummies would be drawn again and "
                "again"
            )
        if self.law == "negative-binomial" and self.trials > MAX_GEOMETRICS:
            raise TaskError(
                f"trials is {self.trials}; a negative binomial number is of at most "
                f"{MAX_GEOMETRICS} geometric ones"
            )
        if self.expected_per_user > MAX_DUMMIES:
            raise TaskError(
                f"{self.expected_per_user:.4g} dummies of a user are expected; at most "
                f"{MAX_DUMMIES} are carried"
            )

    def _log_chance_of_most(self) -> float:
        """Return ln P(drawing `most`) where the mean lies above it: no more than ln P(X ≤ most)."""
        n, k, chance = self.trials, self.most, self.extra_chance
        if self.expected_per_user - self.per_user <= k:
            return 0.0
        if self.law == "negative-binomial":
            ways = math.lgamma(n + k) - math.lgamma(n) - math.lgamma(k + 1)
            return ways + n * math.log1p(-chance) + k * math.log(chance)
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        return ways + k * math.log(chance) + (n - k) * math.log1p(-chance)

    @classmethod
    def averaging(cls, dummies_per_user: float) -> Self:
        """
        Return the law with this mean and the least spread, or raise TaskError. Run by the analyzer.

        A mean from 0 to MAX_DUMMIES: 1.3 is one for certain and one more with probability .3,
        rounded to 1 / EXTRA_WEIGHT_SUM. A whole number is the law `fixed`.
        """
        if not 0 <= dummies_per_user <= MAX_DUMMIES:
            raise TaskError(
                f"dummies_per_user is {dummies_per_user}; it must lie between 0 and {MAX_DUMMIES}"
            )
        certain = math.floor(dummies_per_user)
        more, extra_weight = divmod(
            round((dummies_per_user - certain) * EXTRA_WEIGHT_SUM), EXTRA_WEIGHT_SUM
        )
        drawn = int(extra_weight > 0)
        return cls(
            law="fractional" if drawn else "fixed",
            per_user=certain + more,
            trials=drawn,
            extra_weight=extra_weight,
            most=drawn,
        )

    @property
    def bounded(self) -> bool:
        """Whether the law ends by itself, without being conditioned on `most`."""
        return self.law in {"fixed", "fractional", "binomial"}

    @property
    def uniform(self) -> bool:
        """Whether each dummy is a uniform report."""
        return self.law != "each-item"

    @property
    def maximum(self) -> int:
        """The most dummies that one user ever adds."""
        return self.per_user + self.most

    @property
    def expected_per_user(self) -> float:
        """How many dummies one user adds on average, but for the cut at `most`; 0 or more."""
        chance = self.extra_chance
        if self.law == "negative-binomial":
            return self.per_user + self.trials * chance / (1 - chance)
        return self.per_user + self.trials * chance

    @property
    def extra_chance(self) -> float:
        """extra_weight / EXTRA_WEIGHT_SUM; from 0 to below 1, exact."""
        return self.extra_weight / EXTRA_WEIGHT_SUM


NO_DUMMIES: Final = DummySpec(law="fixed", per_user=0)
