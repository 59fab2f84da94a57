"""What a task's shufflers drop from a batch and add to it, in all views of its values."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.task.dummies import period
from shuffledp.common.task.shuffler_spec import ItemNoise, ReportSampling, ShufflerSpec

_FALSE_ALARM: Final = 1e-12
"""Maximum probability that an honest batch's size is outside the bounds of `batch_reports`."""
_STEP_RATIOS: Final = np.geomspace(1 / 8, 8, 19)
_MAX_STEP: Final = 30.0
"""Larger steps of Chernoff's bound would gain less than one report."""


def noises_in_words(noises: Sequence[ItemNoise]) -> str:
    """State the noises of all views, each once; of the first views, if the others repeat them."""
    first, alike = period(noises), defaultdict[str, list[str]](list)
    for number, noise in enumerate(noises[:first], start=1):
        alike[noise.words].append(str(number))
    if len(alike) == 1:
        return noises[0].words
    stated = "; ".join(
        f"of view{'s' * (len(own) > 1)} {', '.join(own)} {words}" for words, own in alike.items()
    )
    return stated + "; and so on by turns" * (first < len(noises))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffling(ReportSampling):
    """What one shuffler of a task, or several together, drop and add: dummies of every view."""

    sizes: tuple[int, ...]
    """Number of items of each view."""
    noises: tuple[ItemNoise, ...]
    """Distribution of the number of dummies of each item, for each view."""

    @property
    def by_view(self) -> tuple[ShufflerSpec, ...]:
        """The sampling, and the dummies of each view alone."""
        return tuple(ShufflerSpec(keep_weight=self.keep_weight, noise=n) for n in self.noises)

    @property
    def words(self) -> str:
        """The distribution of an item's dummies, by view."""
        return noises_in_words(self.noises)

    @property
    def only_permutes(self) -> bool:
        """Whether nothing is dropped or added."""
        return all(view.only_permutes for view in self.by_view)

    @property
    def expected_dummies(self) -> int:
        """Average number of dummies in one batch, rounded up."""
        return math.ceil(self._sum(lambda noise: noise.moments()[0]))

    @property
    def expected_draws(self) -> int:
        """Average number of draws for the dummies of one batch, rounded up."""
        return math.ceil(self._sum(lambda noise: noise.draws_per_item))

    @property
    def most_dummies(self) -> int:
        """Maximum number of dummies in one batch."""
        return int(self._sum(lambda noise: noise.most))

    def _sum(self, of_item: Callable[[ItemNoise], float]) -> float:
        """Sum a figure of one item over the items of all views; each distribution's once."""
        items = Counter[ItemNoise]()
        for size, noise in zip(self.sizes, self.noises, strict=True):
            items[noise] += size
        return math.fsum(size * of_item(noise) for noise, size in items.items())

    def draw_dummies(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Draw the number of dummies of each item of every view, independently. Run by the shuffler.

        Returns counts of shape (sum of sizes,), in the order of the views.
        """
        drawn = map(ShufflerSpec.draw_item_dummies, self.by_view, self.sizes, repeat(rng))
        return np.concatenate(list(drawn))

    def batch_reports(self, sent: int) -> tuple[int, int]:
        """
        Return bounds on the number of reports that the shuffler delivers, from the number sent.

        A number outside them shows that reports were lost or added: an honest shuffler's is outside
        them with probability at most 1e-12. By Chernoff's bound [BLM13, Section 2.2], a sum S is at
        least (log E[exp(h·S)] + L) / h with probability at most exp(-L), for every h > 0, and
        likewise below. Several h are tried, around the best one for a normal distribution.
        """
        if self.only_permutes:
            return sent, sent
        spread = self._sum(lambda noise: noise.moments()[1])
        kept = self.keep_probability
        variance = max(1.0, sent * kept * (1 - kept) + spread)
        exponent = math.log(2 / _FALSE_ALARM)
        steps = np.minimum(_MAX_STEP, math.sqrt(2 * exponent / variance) * _STEP_RATIOS)
        log_moments = {noise: noise.log_moments() for noise in self.noises}

        def bound(h: float) -> float:
            added = self._sum(lambda noise: log_moments[noise](h))
            return (sent * math.log1p(kept * math.expm1(h)) + added + exponent) / h

        minimum = max(bound(-h) for h in steps.tolist())
        maximum = min(bound(h) for h in steps.tolist())
        most = sent + self.most_dummies
        return max(0, math.floor(minimum)), min(most, math.ceil(maximum))
