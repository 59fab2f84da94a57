"""Dummies that name each item, or are uniform in each of several views."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.task import dummies, specs
from shuffledp.common.task.uniform_dummies import BinomialDummies, averaging, of_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDummies(dummies.Dummies):
    """
    A dummy that names the item, with probability item_chance, for each of the `trials` items of the
    domain [BC20].

    Their number is conditioned on being at most `most`: with more, all are drawn again. Accounting
    uses the conditional distribution.
    """

    distribution = "each-item"
    quick = False
    per_user = 0

    trials: Annotated[int, specs.whole(1, dummies.MAX_TRIALS)]
    extra_weight: Annotated[int, specs.whole(1, dummies.EXTRA_WEIGHT_SUM - 1)]
    most: Annotated[int, specs.whole(1, dummies.MAX_DUMMIES)]

    def __post_init__(self) -> None:
        specs.check_fields(self)
        n, k, chance = self.trials, self.most, self.item_chance
        log_probability = 0.0
        if n > k:
            ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
            log_probability = ways + k * math.log(chance) + (n - k) * math.log1p(-chance)
        dummies.check_acceptance(self.expected_per_user, k, log_probability)
        dummies.check_expected(self.expected_per_user)

    @property
    def item_chance(self) -> float:
        """extra_weight / EXTRA_WEIGHT_SUM; above 0 and below 1, exact."""
        return self.extra_weight / dummies.EXTRA_WEIGHT_SUM

    @property
    def hiding_trials(self) -> tuple[int, float]:
        return 1, self.item_chance

    @property
    def lengths(self) -> tuple[int, ...]:
        """One length: the number of dummies would reveal a little."""
        return (self.most,)

    def length_probabilities(self) -> NDArray[np.float64]:
        return np.ones(1)

    @property
    def expected_per_user(self) -> float:
        return self.trials * self.item_chance

    def draw(self, mechanism: dummies.ItemMechanism, n_users: int, rng: Generator) -> dummies.Drawn:
        """Draw users' dummies, one user after the other: true reports of items."""
        drawn = [mechanism.randomize(self._draw_items(rng), rng) for _ in range(n_users)]
        return np.array([len(each) for each in drawn], dtype=np.int64), np.concatenate(drawn)

    def _draw_items(self, rng: Generator) -> dummies.Numbers:
        """Draw the items that one user's dummies name; all again if there are too many."""
        while True:
            items = np.flatnonzero(dummies.successes(self.extra_weight, self.trials, rng))
            if len(items) <= self.most:
                return items

    def sample(
        self, mechanism: dummies.ItemMechanism, users: dummies.Numbers, rng: Generator
    ) -> dummies.Sampled:
        added = rng.binomial(int(users.sum()), self.item_chance, size=self.trials)
        cells = mechanism.sample_cells(users, 0, rng) + added
        return cells, int(users.sum()) + int(added.sum())

    @property
    def words(self) -> str:
        return (
            f"a dummy of each item with {dummies.chance_words(self.extra_weight)}, drawn "
            f"independently, redrawn above {self.most} in all"
        )

    def check_domain_size(self, domain_size: int) -> None:
        if self.trials != domain_size:
            raise TaskError(
                f"trials is {self.trials}; for the distribution each-item it must be domain_size, "
                f"{domain_size}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDummies(dummies.Dummies):
    """For each view of a value, a fixed or fractional number of uniform dummies."""

    distribution = "views"
    per_user = 0

    averages: tuple[int, ...]
    """Average number of dummies of each view, in the task's order, in units of
    1 / EXTRA_WEIGHT_SUM."""

    def __post_init__(self) -> None:
        if not self.averages:
            raise TaskError(
                "averages is empty; the distribution views needs a number for each view"
            )
        for number in self.averages:
            specs.check_int_range(
                "a view's dummies", number, 0, dummies.MAX_DUMMIES * dummies.EXTRA_WEIGHT_SUM
            )
        dummies.check_expected(self.expected_per_user)

    @classmethod
    def averaging(cls, dummies_per_user: float, sizes: Sequence[int]) -> Self:
        """
        Return dummies with this total mean, as many for each item of every view.

        `sizes` are the views' numbers of items. Run by the analyzer. Errors: `averaging`.
        """
        each = dummies_per_user / sum(sizes)
        return cls.of_views([averaging(each * size) for size in sizes])

    @classmethod
    def of_views(cls, views: Sequence[dummies.Dummies]) -> Self:
        """Return the dummies of all views; raise TaskError unless each has an averaging number."""
        unit = dummies.EXTRA_WEIGHT_SUM
        weights = (round(each.expected_per_user * unit) for each in views)  # exact
        found = cls(averages=tuple(weights))
        if found.views != tuple(views):
            raise TaskError("the dummies of each of several views must be fixed or fractional")
        return found

    @property
    def views(self) -> tuple[BinomialDummies, ...]:
        return tuple(map(of_mean, self.averages))

    @property
    def certain(self) -> int:
        return sum(each.per_user for each in self.views)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Numbers of dummies, padding included, that a submission may have: see `every_kth`."""
        return dummies.every_kth(self.certain, sum(each.maximum for each in self.views))

    def length_probabilities(self) -> NDArray[np.float64]:
        total = np.ones(1)
        for each in self.views:
            total = np.convolve(total, each.length_probabilities())
        return self.by_length(total)

    @property
    def expected_per_user(self) -> float:
        return sum(self.averages) / dummies.EXTRA_WEIGHT_SUM

    def draw(self, mechanism: dummies.ItemMechanism, n_users: int, rng: Generator) -> dummies.Drawn:
        """Draw users' dummies: uniform ones of each view, sorted by user."""
        by_view = np.array([each.draw_numbers(n_users, rng) for each in self.views])
        users = np.concatenate([np.repeat(np.arange(n_users), view) for view in by_view])
        views: Any = mechanism  # `shuffledp.common.mechanisms.views.ViewMechanism`
        reports = views.view_dummies(by_view.sum(axis=1).tolist(), rng)
        return by_view.sum(axis=0), reports[np.argsort(users, kind="stable")]

    @property
    def _shown(self) -> str:
        """The averages by view: of the first ones only, if the others repeat them."""
        first = dummies.period(self.averages)
        numbers = [f"{each.expected_per_user:.4g}" for each in self.views[:first]]
        if first == 1:
            return f"{numbers[0]} each"
        return ", ".join(numbers) + " and so on by turns" * (first < len(self.averages))

    @property
    def words(self) -> str:
        return (
            f"uniform dummies of each of {len(self.averages)} views, {self._shown} on average, the "
            "fractions by independent draws"
        )

    @property
    def summary(self) -> str:
        return f"{self._shown} per user on average, by view"
