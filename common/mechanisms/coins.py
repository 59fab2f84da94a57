"""Many exact coins: chances that are ratios of integers, at two bytes of randomness a coin."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_BITS: Final = 16
"""Drawn for every coin; one coin in 2^16 is left undecided by them."""


def exact_coins(
    weight: int, total: int, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """
    Toss coins that come up with chance weight / total exactly. Run by the user agent.

    With weight·2^16 = t·total + r the chance is t/2^16 + (r/total)/2^16: of a uniform 16-bit u,
    u < t is heads, u > t tails, and u = t is decided by an integer below total, heads below r.

    Args:
        weight: 0 .. total.
        total: 1 .. 2^63-1.
        shape: Of the result.
        rng: Where the integers come from.

    Returns:
        Heads and tails, of the given shape.

    Cost: a sixteen-bit draw for each, a quarter of what an integer below total would take.
    """
    threshold, rest = divmod(weight << _BITS, total)
    draw = rng.integers(0, 1 << _BITS, size=shape, dtype=np.uint16)
    heads: NDArray[np.bool_] = draw < threshold
    if rest:
        undecided = draw == threshold
        count = int(undecided.sum())
        heads[undecided] = rng.integers(0, total, size=count, dtype=np.int64) < rest
    return heads
