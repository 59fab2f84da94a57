"""Exact sampling from bounded integers: coins and discrete Laplace noise [CKS20]."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError

_BITS: Final = 16
"""Random bits drawn for every coin; they leave one coin in 2^16 undecided."""


def exact_coins(
    weight: int, total: int, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """
    Toss coins that show heads with chance weight / total exactly. Run by the user agent.

    With weight·2^16 = t·total + r the chance is t/2^16 + (r/total)/2^16: for a uniform 16-bit u, u
    < t is heads and u > t is tails; u = t is decided by a uniform integer below total, heads below
    r.

    Args:
        weight: 0 .. total.
        total: 1 .. 2^63-1.
        shape: Shape of the result.
        rng: Source of randomness.

    Returns:
        True for heads, of the given shape.

    Cost: 16 random bits a coin, a quarter of a draw below total.
    """
    threshold, rest = divmod(weight << _BITS, total)
    draw = rng.integers(0, 1 << _BITS, size=shape, dtype=np.uint16)
    heads: NDArray[np.bool_] = draw < threshold
    if rest:
        undecided = draw == threshold
        count = int(undecided.sum())
        heads[undecided] = rng.integers(0, total, size=count, dtype=np.int64) < rest
    return heads


MAX_DENOMINATOR: Final = 2**50
"""Largest term of a Laplace scale: draws below it, times a few dozen, stay below 2^63."""


def discrete_laplace(
    scale_numerator: int, scale_denominator: int, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """
    Draw noise with P(x) ∝ e^(-|x| · scale_denominator / scale_numerator) [CKS20]. Run by the user
    agent.

    For a scale t/s, U + t·V is geometric noise of scale t if U is uniform below t and kept with
    chance e^(-U/t), and V counts the heads of coins with chance 1/e before the first tail; ⌊(U +
    t·V)/s⌋ has scale t/s. The sign is a fair coin, and -0 is drawn again.

    Args:
        scale_numerator: t, 1 .. MAX_DENOMINATOR.
        scale_denominator: s, 1 .. MAX_DENOMINATOR.
        size: Number of draws.
        rng: Source of randomness.

    Returns:
        Independent draws, shape (size,).

    Raises:
        TaskError: The scale is out of range.

    Cost: about 12 integers a draw.
    """
    for part in (scale_numerator, scale_denominator):
        if not 1 <= part <= MAX_DENOMINATOR:
            raise TaskError(
                f"the scale of the noise is {scale_numerator}/{scale_denominator}; "
                f"both must lie between 1 and {MAX_DENOMINATOR}"
            )
    drawn = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        below = rng.integers(0, scale_numerator, size=size - done, dtype=np.int64)
        below = below[exponential_coins(below, scale_numerator, rng)]
        amount = (below + scale_numerator * _heads_in_a_row(len(below), rng)) // scale_denominator
        negative = rng.integers(0, 2, size=len(amount), dtype=np.int64).astype(np.bool_)
        kept = np.where(negative, -amount, amount)[~(negative & (amount == 0))]
        drawn[done : done + len(kept)] = kept
        done += len(kept)
    return drawn


def exponential_coins(
    numerators: NDArray[np.int64], denominator: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """
    Toss coins that show heads with chance e^(-γ) exactly, 0 ≤ γ ≤ 1 [CKS20].

    Among coins with chances γ/1, γ/2, γ/3, .. the first tail has an odd position with that chance.

    Args:
        numerators: γ · denominator of each coin, each 0 .. denominator; shape (n,).
        denominator: 1 .. MAX_DENOMINATOR.
        rng: Source of randomness.

    Returns:
        True for heads, shape (n,).
    """
    first_tail = np.zeros(len(numerators), dtype=np.int64)
    tossing = np.arange(len(numerators))
    place = 1
    while len(tossing):
        draw = rng.integers(0, denominator * place, size=len(tossing), dtype=np.int64)
        heads = draw < numerators[tossing]
        first_tail[tossing[~heads]] = place
        tossing = tossing[heads]
        place += 1
    odd: NDArray[np.bool_] = first_tail % 2 == 1
    return odd


def _heads_in_a_row(size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Count the heads of a coin with chance 1/e before its first tail."""
    counts = np.zeros(size, dtype=np.int64)
    tossing = np.arange(size)
    while len(tossing):
        tossing = tossing[exponential_coins(np.ones(len(tossing), dtype=np.int64), 1, rng)]
        counts[tossing] += 1
    return counts
