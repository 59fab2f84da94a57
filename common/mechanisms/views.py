"""
Several histograms of one value in one submission: the views of a value.

A device reports the item of the value in every view, without local noise. Uniform dummies of each
view, from users or from shufflers, hide the items. The views' counts are independent given the
values, so that their privacy losses compose exactly (docs/theory/accounting.md#views).

A mechanism with views states the item of a value in each; see `Hierarchy`, `Digits` and `Tables`.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Self, cast

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.mechanisms.base import Counts, Randomizer, Reports, Vector
from shuffledp.common.mechanisms.count_law import Draws
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.mechanisms.support import PlaceReports
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.messages.submission import plain_reports
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.shuffler_spec import NO_NOISE, ItemNoise
from shuffledp.common.task.task import Task
from shuffledp.common.task.uniform_dummies import UniformDummies

_NOISELESS: Final = ResponseWeights.for_epsilon(math.inf)
"""Weights 1 and 0: every report is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One histogram of a value, and the dummies among which it is hidden."""

    size: int
    """Number of items."""
    dummies: UniformDummies
    """The dummies of one user."""
    noise: ItemNoise = NO_NOISE
    """The number of all shufflers' dummies of each item."""

    @classmethod
    def of_task(cls, task: Task) -> tuple[Self, ...]:
        """Return all views of a task."""
        return tuple(
            cls(
                size=view.domain_size,
                dummies=cast("UniformDummies", view.dummies),  # as several views need
                noise=noise,
            )
            for view, noise in zip(task.views, task.shuffler.noises, strict=True)
        )

    @classmethod
    def averaging(cls, dummies_per_user: float, sizes: Sequence[int]) -> tuple[Self, ...]:
        """Return views with this total mean of users' dummies, as many for each item."""
        added = ViewDummies.averaging(dummies_per_user, sizes).views
        return tuple(cls(size=size, dummies=each) for size, each in zip(sizes, added, strict=True))

    @property
    def reduction(self) -> MatchCountReduction:
        """Match count of the view alone."""
        return MatchCountReduction.for_weights(answers=self.size, weights=_NOISELESS, hashed=False)

    def item_variance(self, n_users: float) -> float:
        """
        Return the variance of an item's count of dummies, up to what a known total takes off it.

        The total of a view's reports is known. That moves all items alike, which estimates remove.
        """
        _, by_shufflers = self.noise.moments()
        return n_users * self.dummies.expected_per_user / self.size + by_shufflers

    def adding(self, reports: float, n_users: float) -> float:
        """
        Return how many users are expected to add as many dummies as arrived among the reports.

        All n_users without users' dummies: of shufflers' noise only the distribution is known, and
        a view has only one of the two.
        """
        expected = self.dummies.expected_per_user
        return max(1.0, reports - n_users) / expected if expected else n_users

    def count_law(self, n_users: float, items: int = 1) -> tuple[Draws, ...]:
        """Return the distribution of the dummies of so many items, up to a constant, as a sum."""
        dummies = round(n_users * self.dummies.expected_per_user)
        coins = (Draws.coins(dummies, items / self.size),) if dummies else ()
        summed = self.noise.summed
        return (*coins, *(Draws(items * n, values, chances) for n, values, chances in summed))


@dataclass(frozen=True)
class ViewMechanism(PlaceReports, Randomizer):
    """Base class of mechanisms with views; cells are the items of all views, view by view."""

    PLACE: ClassVar[str] = "a report's number"
    local_epsilon: ClassVar[float] = math.inf

    views: tuple[View, ...]

    @abstractmethod
    def encode(self, values: Any, rng: np.random.Generator) -> NDArray[np.int64]:  # noqa: ANN401  # any kind
        """
        Return the item of each of n values in every view, shape (n, views). Run by the user agent.

        Raises ValueRangeError if a value is invalid.
        """

    @property
    def users_per_report(self) -> float:
        """Maximum number of users that one report can stand for."""
        return 1.0

    def influence(self, most: int) -> tuple[float, float]:
        """Return the users that `most` reports can stand for if all name the worst cell."""
        return (most * self.users_per_report,) * 2

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Return whether no local ε is promised: there is no noise."""
        return local_epsilon == self.local_epsilon

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of items of each view."""
        return tuple(view.size for view in self.views)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """The first cell of each view, and the number of cells; shape (views + 1,)."""
        return np.cumsum([0, *self.sizes])

    @property
    def places(self) -> int:
        return int(self.offsets[-1])

    @property
    def reduction(self) -> MatchCountReduction:
        """Match count of the last view alone; see `view_reductions`."""
        return self.views[-1].reduction

    @cached_property
    def view_reductions(self) -> tuple[MatchCountReduction, ...]:
        return tuple(view.reduction for view in self.views) if len(self.views) > 1 else ()

    def randomize(self, values: Any, rng: np.random.Generator) -> Reports:  # noqa: ANN401  # any kind
        return plain_reports((self.encode(values, rng) + self.offsets[:-1]).ravel())

    def view_dummies(self, counts: Sequence[int], rng: np.random.Generator) -> Reports:
        """Draw dummies, counted by view, as uniform items of theirs. Run by the user agent."""
        drawn = [
            first + rng.integers(0, size, size=count, dtype=np.int64)
            for first, size, count in zip(self.offsets[:-1], self.sizes, counts, strict=True)
        ]
        return plain_reports(np.concatenate(drawn))

    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        """Draw `count` uniform dummies of random views, by their shares of all dummies."""
        means = np.array([view.dummies.expected_per_user for view in self.views])
        return self.view_dummies(rng.multinomial(count, means / (means.sum() or 1)).tolist(), rng)

    def view_of(self, reports: Reports) -> NDArray[np.int64]:
        """Return the view of each report. Run by auditors."""
        return np.searchsorted(self.offsets, reports["item"], side="right") - 1

    def by_view(self, cells: Counts) -> list[Vector]:
        """Split the counts of all cells by view."""
        return np.split(cells.astype(np.float64), self.offsets[1:-1])

    def sample_batch(self, values: Any, rng: np.random.Generator) -> tuple[Counts, int]:  # noqa: ANN401  # any kind
        """
        Draw the result of `tally` for users with these values, and the number of their reports.

        Run by the simulator.
        """
        items = zip(self.encode(values, rng).T, self.sizes, strict=True)
        own = [np.bincount(column, minlength=size) for column, size in items]
        cells = np.concatenate(own) + self.sample_dummies(len(values), rng)
        return cells, int(cells.sum())

    def sample_dummies(self, n_users: int, rng: np.random.Generator) -> Counts:
        """Draw the counts of all users' dummies by cell. Run by the simulator."""
        drawn = []
        for view in self.views:
            number = int(view.dummies.draw_numbers(n_users, rng).sum())
            drawn.append(rng.multinomial(number, np.full(view.size, 1 / view.size)))
        return np.concatenate(drawn)
