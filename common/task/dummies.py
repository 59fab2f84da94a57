"""
The dummies that users add: what all their distributions have in common.

Each distribution is a class of its own, listed in `shuffledp.common.task.dummy_forms`. A user
draws dummies independently of the value, from bounded integers only.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.protocols import DummyDistribution

MAX_DUMMIES: Final = 2**20
"""Maximum number of dummies of one user; no envelope holds more."""
MAX_TRIALS: Final = 2**24
"""Maximum of `trials`; `each-item` needs one trial for each item of the domain."""
EXTRA_WEIGHT_SUM: Final = 2**32
"""Denominator of extra_weight."""
MAX_LENGTHS: Final = 256
"""Maximum number of lengths of a task's submissions."""
_MIN_ACCEPTANCE: Final = 2.0**-8
"""Minimum probability that a draw is accepted; below it, rejection sampling would take too long."""

Numbers = NDArray[np.int64]
Drawn = tuple[Numbers, NDArray[np.void]]
"""The number of each user's dummies, shape (n_users,), and the dummies, user by user."""
Sampled = tuple[Numbers, int]
"""Counts by a mechanism's cells, shape (cells,), and the number of reports."""


def every_kth(least: int, most: int) -> tuple[int, ...]:
    """Return all numbers; of more than MAX_LENGTHS every k-th, down from `most`; ascending."""
    step = (most - least) // MAX_LENGTHS + 1
    return tuple(range(most, least - 1, -step))[::-1]


def period(entries: Sequence[object]) -> int:
    """Return the least number n above 0 so that each entry equals the n-th after it, if any."""
    size = len(entries)
    return next(n for n in range(1, size + 1) if entries[n:] == entries[: size - n])


class ItemMechanism(Protocol):
    """The part of `shuffledp.common.mechanisms.base.Mechanism` that draws dummies."""

    @property
    def domain_size(self) -> int:
        """Number of items."""

    def randomize(self, values: Numbers, rng: Generator) -> NDArray[np.void]:
        """Return reports of items."""

    def dummies(self, count: int, rng: Generator) -> NDArray[np.void]:
        """Draw `count` uniform reports."""

    def sample_cells(self, users: Numbers, n_dummies: int, rng: Generator) -> Numbers:
        """Draw the counts of users' reports and uniform dummies by cell."""


class Dummies(ABC):
    """The distribution of the dummies of one user."""

    __slots__ = ()

    distribution: ClassVar[DummyDistribution]
    """Its name in tasks and drafts."""
    uniform: ClassVar[bool] = False
    """Whether dummies are uniform reports; if not, each names an item, or one of a view."""
    quick: ClassVar[bool] = True
    """Whether the dummies of many users are drawn at once."""
    per_user: int
    """Uniform dummies that each user always adds."""

    @property
    @abstractmethod
    def lengths(self) -> tuple[int, ...]:
        """Numbers of dummies, padding included, that a submission may have; ascending."""

    @abstractmethod
    def length_probabilities(self) -> NDArray[np.float64]:
        """Return the probability of each of the `lengths`; same shape."""

    @property
    @abstractmethod
    def expected_per_user(self) -> float:
        """Average number of dummies of one user, before conditioning; nulls excluded."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What each user adds, to follow "and add" in the sentence of a guarantee."""

    @abstractmethod
    def draw(self, mechanism: ItemMechanism, n_users: int, rng: Generator) -> Drawn:
        """
        Draw users' dummies as reports of a mechanism for items, independently of their values.

        Run by the user agent for one user, and by simulations for many. Clusters include null
        reports that fill their rooms, so that the length shows the rooms alone.
        """

    def sample(self, mechanism: ItemMechanism, users: Numbers, rng: Generator) -> Sampled:
        """
        Draw the counts of the reports of `users`, shape (domain_size,), and of all their dummies.

        By default the mechanism draws dummies together with the reports. Run by simulations.
        Ignores the maximum of dummies per user, which is practically never reached.
        """
        cells = mechanism.sample_cells(users, 0, rng)
        return cells, int(cells.sum())

    @property
    def views(self) -> "tuple[Any, ...]":
        """The dummies of each histogram that a user reports to: one, or one for each view."""
        return (self,)

    @property
    def certain(self) -> int:
        """Number of dummies that each user always adds, in all views together."""
        return self.per_user

    def by_length(self, figures: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum figures of each number of dummies, from `certain` on, over those of each length."""
        certain = self.certain
        starts = [0, *(length + 1 - certain for length in self.lengths[:-1])]
        return np.asarray(np.add.reduceat(figures, starts))

    @property
    def maximum(self) -> int:
        """Maximum number of dummies of one user; for clusters, null reports included."""
        return self.lengths[-1]

    @property
    def most_padding(self) -> int:
        """Maximum number of null reports in one submission."""
        return int(np.diff(self.lengths, prepend=self.certain - 1).max()) - 1

    @property
    def expected_sent(self) -> float:
        """Average number of dummies of one user, and of the null reports that fill rooms."""
        return self.expected_per_user

    @property
    def item_chance(self) -> float:
        """Probability that a user adds a dummy of one item; 0 unless dummies name each item."""
        return 0.0

    @property
    def hiding_trials(self) -> tuple[int, float]:
        """
        Trials of one user that may hide an item, and the chance of each.

        By default none: the number of dummies hides an item.
        """
        return 0, 0.0

    @property
    def clause(self) -> str:
        """What a user adds, to follow the description of a plan; empty if nothing."""
        number = self.expected_per_user
        return f", {number:g} {'dummy' if number == 1 else 'dummies'} per user" if number else ""

    @property
    def summary(self) -> str:
        """The distribution and its average, for a table of a task's parameters."""
        return f"{self.distribution}, {self.expected_per_user:.4g} per user on average"

    def check_domain_size(self, domain_size: int) -> None:  # noqa: B027  # most are for any
        """Raise TaskError unless the distribution is for this number of items."""


def successes(weight: int, count: int, rng: Generator) -> NDArray[np.bool_]:
    """Draw `count` trials: each is a bounded integer, and succeeds if it is below the weight."""
    return rng.integers(0, EXTRA_WEIGHT_SUM, size=count, dtype=np.int64) < weight


def chance_words(weight: int) -> str:
    """State the probability weight / EXTRA_WEIGHT_SUM."""
    return f"probability {weight / EXTRA_WEIGHT_SUM:.6g} ({weight} in {EXTRA_WEIGHT_SUM})"


def check_acceptance(mean: float, most: int, log_probability: float) -> None:
    """
    Check that a device can draw a random number X that is conditioned on being at most `most`.

    `mean` is that of X, and `log_probability` ln P(X = most), below ln P(X ≤ most). Raises
    TaskError.
    """
    if mean > most and log_probability < math.log(_MIN_ACCEPTANCE):
        raise TaskError(
            f"most is {most} for a distribution with mean {mean:.4g}; too many draws would be "
            "rejected"
        )


def check_expected(expected: float) -> None:
    """Raise TaskError if a user's dummies are too many on average."""
    if expected > MAX_DUMMIES:
        raise TaskError(
            f"the expected number of dummies per user is {expected:.4g}; it must be at most "
            f"{MAX_DUMMIES}"
        )
