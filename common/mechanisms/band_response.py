"""
The band response: report a place on a line, more likely one near the item.

The d items lie on a line of d+2b places. Each of the 2b+1 places around the item has weight `true`,
and each other place has weight `other`. The square wave and the piecewise mechanism differ in b.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.arguments import CheckedArguments
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.task.specs import MAX_WEIGHT_SUM


@dataclass(frozen=True)
class BandResponse(CheckedArguments):
    """
    Report a place inside or outside the item's band: the places v .. v+2b for item v.

    The sum of all weights is the same for every item, so the odds bound the privacy loss.
    """

    domain_size: int
    """d, the number of items, at least 2."""
    reach: int
    """b, at least 0."""
    weights: ResponseWeights
    """Weights of one place inside the band and of one outside it."""

    def __post_init__(self) -> None:
        if self.total > MAX_WEIGHT_SUM:
            raise TaskError(f"the sum of the weights is {self.total}; it must stay below 2^63")

    @property
    def width(self) -> int:
        """Number of places in an item's band: 2b+1."""
        return 2 * self.reach + 1

    @property
    def places(self) -> int:
        """Number of places: d+2b."""
        return self.domain_size + 2 * self.reach

    @cached_property
    def _band_weight(self) -> int:
        return self.width * self.weights.true

    @cached_property
    def total(self) -> int:
        """W, the sum of all weights: the 2b+1 places of the band and d-1 others."""
        return self._band_weight + (self.domain_size - 1) * self.weights.other

    @property
    def floor(self) -> float:
        """Probability of a given place outside the band."""
        return self.weights.other / self.total

    @property
    def rise(self) -> float:
        """Additional probability of a given place inside the band."""
        return (self.weights.true - self.weights.other) / self.total

    @property
    def signal(self) -> float:
        """Probability 1-γ that an answer is drawn from the item's band alone; see `reduction`."""
        return self.width * (self.weights.true - self.weights.other) / self.total

    @property
    def reduction(self) -> MatchCountReduction | None:
        """
        Match count with γ = D·other/W and l = D/(2b+1), for D places.

        An answer is uniform over all places with probability γ, and otherwise uniform over the band
        of the item. The bands of the first and the last item, the worst pair, are disjoint, so the
        collision is 0. None if even these overlap: then l is below 2, which no formula covers.
        """
        if self.width >= self.domain_size:
            return None
        return MatchCountReduction.of_support_sets(
            answers=self.places / self.width,
            local_epsilon=self.weights.local_epsilon,
            blanket=self.places * self.weights.other / self.total,
            signal=self.signal,
            independent=False,
        )

    def respond(self, values: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Draw a place below d+2b for each item, shape (n,), not checked here. Run by the user agent.

        Draws one integer below W for each value: an integer below (2b+1)·true selects a place in
        the band, any other integer one of the d-1 places outside.
        """
        draw = rng.integers(0, self.total, size=values.shape, dtype=np.int64)
        inside = values + draw // self.weights.true
        # Without noise every draw is in the band; `max` only avoids a division by 0.
        other = (draw - self._band_weight) // max(1, self.weights.other)
        outside = other + self.width * (other >= values)
        return np.where(draw < self._band_weight, inside, outside)
