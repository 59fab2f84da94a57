"""
Dummies in clusters of positive and negative reports, which users add to their own report.

A user makes a few trials. Each adds at most one room to the submission: a fixed number of reports,
which shows in its length. By chance, a shown room holds a cluster, and null reports otherwise. A
cluster is some positive and some negative reports of one uniformly random item; a negative report
counts as -negative_weight. Nothing here depends on the user's value, so lengths of submissions
reveal nothing about it.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.task import dummies
from shuffledp.common.task.specs import check_int_range

CHANCE_SUM: Final = dummies.EXTRA_WEIGHT_SUM
"""Denominator of chances."""
Triple = tuple[int, int, int]
MAX_TYPES: Final = 64
MAX_ROOMS: Final = 3
MAX_CLUSTER_TRIALS: Final = 64
MAX_NEGATIVE_WEIGHT: Final = 64
_MAX_OF_A_SIGN: Final = 255
_MAX_TYPE_WEIGHT: Final = 2**31
_MAX_FILLED: Final = CHANCE_SUM * 19 // 20
"""The guarantee needs some empty rooms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDummies(dummies.Dummies):
    """Positive and negative reports of random items. Chances are weights / CHANCE_SUM."""

    distribution = "clusters"
    quick = False
    per_user = 0

    negative_weight: int
    """A negative report counts as minus this number of users."""
    trials: int
    clusters: tuple[Triple, ...]
    """Types: positive reports, negative reports, weight among the types of the same room. A cluster
    lies in the smallest room that holds it."""
    rooms: tuple[Triple, ...]
    """Ascending: number of reports, weight of being shown, weight of being filled if shown."""

    def __post_init__(self) -> None:
        check_int_range("negative_weight", self.negative_weight, 1, MAX_NEGATIVE_WEIGHT)
        check_int_range("the number of trials of clusters", self.trials, 1, MAX_CLUSTER_TRIALS)
        check_int_range("the number of types of clusters", len(self.clusters), 1, MAX_TYPES)
        check_int_range("the number of rooms", len(self.rooms), 1, MAX_ROOMS)
        for positive, negative, weight in self.clusters:
            check_int_range("a cluster's number of positive reports", positive, 0, _MAX_OF_A_SIGN)
            check_int_range("a cluster's number of negative reports", negative, 0, _MAX_OF_A_SIGN)
            check_int_range(
                "a cluster's number of reports", positive + negative, 1, 2 * _MAX_OF_A_SIGN
            )
            check_int_range("a cluster's weight", weight, 1, _MAX_TYPE_WEIGHT)
        if len({each[:2] for each in self.clusters}) < len(self.clusters):
            raise TaskError("a type of clusters is listed twice")
        sizes = [size for size, _, _ in self.rooms]
        if sizes != sorted(set(sizes)):
            raise TaskError(f"the rooms have {sizes} reports; they must be ascending")
        for size, shown, filled in self.rooms:
            check_int_range("a room's number of reports", size, 1, 2 * _MAX_OF_A_SIGN)
            check_int_range("a room's weight of being shown", shown, 1, CHANCE_SUM)
            check_int_range("a room's weight of being filled", filled, 1, _MAX_FILLED)
        total = sum(shown for _, shown, _ in self.rooms)
        check_int_range("the weights of being shown together", total, 1, CHANCE_SUM)
        largest = max(positive + negative for positive, negative, _ in self.clusters)
        if largest > sizes[-1]:
            raise TaskError(f"a cluster has {largest} reports; the largest room holds {sizes[-1]}")
        if not all(self.types_by_room()):
            raise TaskError(f"one of the rooms of {sizes} reports holds no type of clusters")
        self.length_probabilities()  # raises TaskError if there are too many

    @lru_cache(maxsize=64)  # noqa: B019  # keeps a few small specs
    def types_by_room(self) -> tuple[tuple[Triple, ...], ...]:
        """Return the types of each room: those that no smaller room holds."""
        found: list[list[Triple]] = [[] for _ in self.rooms]
        for each in self.clusters:
            room = next(k for k, (size, _, _) in enumerate(self.rooms) if sum(each[:2]) <= size)
            found[room].append(each)
        return tuple(map(tuple, found))

    def chances(self) -> Iterator[tuple[int, int, float]]:
        """Yield each type's positive and negative reports, and its chance in one trial."""
        for (_, shown, filled), types in zip(self.rooms, self.types_by_room(), strict=True):
            total = sum(weight for _, _, weight in types)
            for positive, negative, weight in types:
                chance = shown / CHANCE_SUM * (filled / CHANCE_SUM) * (weight / total)
                yield positive, negative, chance

    @property
    def noise(self) -> float:
        """Expected square of what one user's clusters add to all items; see `item_variance`."""
        weight = self.negative_weight
        return self.trials * math.fsum(
            chance * (positive - weight * negative) ** 2
            for positive, negative, chance in self.chances()
        )

    def item_variance(self, n_users: float, domain_size: int) -> float:
        """Return the variance that n users' clusters add to an item's count: n·noise·(d-1)/d²."""
        return n_users * self.noise * (domain_size - 1) / domain_size**2

    @property
    def shown(self) -> float:
        """Probability that a trial shows a room."""
        return sum(shown for _, shown, _ in self.rooms) / CHANCE_SUM

    @property
    def hiding_trials(self) -> tuple[int, float]:
        return self.trials, self.shown

    @property
    def expected_per_user(self) -> float:
        return self.trials * math.fsum(
            chance * (positive + negative) for positive, negative, chance in self.chances()
        )

    @property
    def influence(self) -> tuple[int, int]:
        """The most reports that one submission adds to an item's count, and takes from it."""
        most = 1 + self.lengths[-1]
        return most, self.negative_weight * most

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(sorted(_by_length(self)))

    @property
    def most_padding(self) -> int:
        return self.lengths[-1]

    @property
    def expected_sent(self) -> float:
        return float(self.length_probabilities() @ np.array(self.lengths))

    def length_probabilities(self) -> NDArray[np.float64]:
        return np.array([chance for _, chance in sorted(_by_length(self).items())])

    @property
    def words(self) -> str:
        return (
            "clusters of positive and negative reports of random items as the task's table says, "
            f"{self.expected_per_user:.4g} reports on average"
        )

    @property
    def clause(self) -> str:
        """Clusters, and the most reports of a user, the own one included."""
        return f", clusters of positive and negative reports; at most {1 + self.maximum:,} messages"

    @property
    def summary(self) -> str:
        nulls = self.expected_sent - self.expected_per_user
        return (
            f"clusters of {self.expected_per_user:.4g} reports per user on average, and "
            f"{nulls:.4g} null reports"
        )

    def draw(
        self, mechanism: dummies.ItemMechanism, n_users: int, rng: np.random.Generator
    ) -> dummies.Drawn:
        """Draw users' clusters, one user after the other, and the null reports of their rooms."""
        signed: Any = mechanism  # `shuffledp.common.mechanisms.signed.Signed`
        size = mechanism.domain_size
        drawn = [signed.cluster_reports(*self.draw_one(size, rng)) for _ in range(n_users)]
        return np.array([len(each) for each in drawn], dtype=np.int64), np.concatenate(drawn)

    def draw_one(self, domain_size: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], int]:
        """
        Draw one user's clusters, independently of the value. Run by the user agent.

        All draws are bounded integers.

        Returns:
            Numbers of the reports, (m,): an item for a positive report, domain_size more for a
            negative one. And the number of reports that the shown rooms hold, null reports
            included.
        """
        numbers, size = list[int](), 0
        for _ in range(self.trials):
            room = _choose([shown for _, shown, _ in self.rooms], CHANCE_SUM, rng)
            if room is None:
                continue
            size += self.rooms[room][0]
            if _choose([self.rooms[room][2]], CHANCE_SUM, rng) is None:
                continue
            types = self.types_by_room()[room]
            weights = [weight for _, _, weight in types]
            positive, negative, _ = types[cast("int", _choose(weights, sum(weights), rng))]
            item = int(rng.integers(0, domain_size, dtype=np.int64))
            numbers += [item] * positive + [domain_size + item] * negative
        return np.array(numbers, dtype=np.int64), size


@lru_cache(maxsize=64)
def _by_length(spec: ClusterDummies) -> dict[int, float]:
    """Return the probability of each number of reports in the rooms that a user shows."""
    hidden = CHANCE_SUM - sum(shown for _, shown, _ in spec.rooms)
    one = [(size, weight / CHANCE_SUM) for size, weight, _ in spec.rooms]
    if hidden:
        one.append((0, hidden / CHANCE_SUM))
    found = {0: 1.0}
    for _ in range(spec.trials):
        more: defaultdict[int, float] = defaultdict(float)
        for length, chance in found.items():
            for size, share in one:
                more[length + size] += chance * share
        found = more
        if len(found) > dummies.MAX_LENGTHS:
            raise TaskError(
                f"submissions would have {len(found)} lengths or more; they may have at most "
                f"{dummies.MAX_LENGTHS}"
            )
    return found


def _choose(weights: Sequence[int], total: int, rng: np.random.Generator) -> int | None:
    """Choose an index with probability weight / total; None with what is left of the total."""
    drawn = int(rng.integers(0, total, dtype=np.int64))
    ends = enumerate(itertools.accumulate(weights))
    return next((index for index, end in ends if drawn < end), None)
