"""
The response that a square wave and a piecewise mechanism draw: a place near the item, or any.

Items stand on a line that is 2b places longer than they are. With weight `true` the answer is each
of the 2b+1 places around the item, with weight `other` each other one. What the two mechanisms
choose differently is b, and what they make of the answers.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.weights import ResponseWeights
from common.task.specs import MAX_WEIGHT_SUM


@dataclass(frozen=True)
class BandResponse:
    """
    Answer with a place around the item, or any: place j is around item v if v ≤ j ≤ v+2b.

    All weights add to the same for every item, so that a place gives away their odds.
    """

    items: int
    """d, at least 2."""
    reach: int
    """b, 0 or more."""
    weights: ResponseWeights
    """Of one place."""

    def __post_init__(self) -> None:
        if self.total > MAX_WEIGHT_SUM:
            raise TaskError(f"the sum of the weights is {self.total}; it must stay below 2^63")

    @property
    def width(self) -> int:
        """How many places are around an item: 2b+1."""
        return 2 * self.reach + 1

    @property
    def places(self) -> int:
        """How many places there are: d+2b."""
        return self.items + 2 * self.reach

    @cached_property
    def _near(self) -> int:
        return self.width * self.weights.true

    @cached_property
    def total(self) -> int:
        """W, the same for every item: its 2b+1 places, and d-1 others."""
        return self._near + (self.items - 1) * self.weights.other

    @property
    def floor(self) -> float:
        """How likely a given place away from the item is."""
        return self.weights.other / self.total

    @property
    def rise(self) -> float:
        """How much likelier a given place around the item is."""
        return (self.weights.true - self.weights.other) / self.total

    @property
    def signal(self) -> float:
        """How likely an answer is drawn from around its item alone: 1-γ."""
        return self.width * (self.weights.true - self.weights.other) / self.total

    @property
    def reduction(self) -> MatchCountReduction | None:
        """
        An answer is uniform over all places with γ = D·other/W, and else over those around its
        item.

        So l = D/(2b+1), and the first and the last item share no place: collision 0, the worst of
        all pairs. None where even these two share some, at a reach of half the items: then l may
        be below 2, for which the accountant has no formula.
        """
        if self.width >= self.items:
            return None
        return MatchCountReduction.of_intervals(
            answers=self.places / self.width,
            local_epsilon=self.weights.local_epsilon,
            blanket=self.places * self.weights.other / self.total,
            signal=self.signal,
        )

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Answer for each value. Run by the user agent.

        One integer below W is drawn for each value: below (2b+1)·true it names one of the places
        around the item, above it one of the d-1 others.

        Args:
            values: Items, shape (n,), each in 0 .. items-1, which is not checked here.
            rng: Source of randomness.

        Returns:
            Places, shape (n,), each below d+2b.
        """
        draw = rng.integers(0, self.total, size=values.shape, dtype=np.int64)
        around = values + draw // self.weights.true
        # Without noise nothing is drawn beyond the first case, and nothing is divided by 0.
        other = (draw - self._near) // max(1, self.weights.other)
        away = other + self.width * (other >= values)
        return np.where(draw < self._near, around, away)

    def dummies(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `count` uniform places: the blanket. Run by the user agent."""
        return rng.integers(0, self.places, size=count, dtype=np.int64)
