"""A mechanism that remembers what it drew."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Mechanism, Randomizer, Reports


class Watched:
    """A mechanism, and what it drew since it was last asked: first the own report, then dummies."""

    def __init__(self, mechanism: Randomizer) -> None:
        self._behind = cast("Mechanism", mechanism)  # what is played are items
        self.drawn: list[Reports] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever a mechanism offers
        return getattr(self._behind, name)

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        """Randomize, and remember."""
        self.drawn.append(self._behind.randomize(values, rng))
        return self.drawn[-1]

    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        """Draw dummies, and remember."""
        self.drawn.append(self._behind.dummies(count, rng))
        return self.drawn[-1]
