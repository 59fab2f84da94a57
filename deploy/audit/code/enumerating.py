"""A generator that draws all there is to draw, so that a law can be counted instead of tested."""

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Enumerating(np.random.Generator):
    """
    Draws bounded integers alone, those that it was given; anything else that is asked of it fails.

    A float in the place of an integer rounds chances: it is told by its not being drawn here.
    """

    def __init__(self, draws: list[NDArray[np.int64]]) -> None:
        """Take what each call is given, in order."""
        super().__init__(np.random.PCG64(0))
        self._draws = draws
        self.bounds: list[int] = []
        """Of each call: how many integers there were to draw from."""

    def integers(  # type: ignore[override]  # of what the numpy types allow, what is used
        self,
        low: int,
        high: int | None = None,
        size: int | tuple[int, ...] = (),
        dtype: DTypeLike = np.int64,
        endpoint: bool = False,  # noqa: FBT001, FBT002  # as numpy has it
    ) -> NDArray[np.int64]:
        """Give the next of the draws, cut to the size that is asked for."""
        first, beyond = (0, low) if high is None else (low, high)
        self.bounds.append(int(beyond) - int(first) + endpoint)
        drawn = self._draws.pop(0)[: int(np.prod(size))]
        return drawn.reshape(size).astype(dtype)

    def _nothing_else(self, *_: object, **__: object) -> None:
        raise TypeError("only bounded integers are drawn here")

    random = uniform = normal = standard_normal = choice = exponential = _nothing_else  # type: ignore[assignment]  # none of them is to be called
    bytes = binomial = geometric = poisson = permutation = shuffle = _nothing_else  # type: ignore[assignment]  # nor of these
