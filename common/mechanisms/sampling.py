"""Many exact coins: chances that are ratios of integers, at two bytes of randomness a coin."""

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError

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


MAX_DENOMINATOR: Final = 2**50
"""Of a Laplace scale: what is drawn below it, times a few dozen, stays below 2^63."""
_WORD_BITS: Final = 62
"""Of an arbitrary chance, compared at a time."""

Big = NDArray[np.object_]
"""Whole numbers of any size."""


def discrete_laplace(
    scale_numerator: int, scale_denominator: int, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """
    Draw noise with P(x) ∝ e^(-|x| · scale_denominator / scale_numerator) [CKS20].

    Run by the user agent. With t/s the scale, U + t·V is geometric noise of scale t if U is
    uniform below t and kept with chance e^(-U/t), and V counts how often coins with chance 1/e
    show heads before tails; ⌊(U + t·V)/s⌋ is that of scale t/s. A fair sign follows, of which
    -0 is drawn again.

    Args:
        scale_numerator: t, 1 .. MAX_DENOMINATOR.
        scale_denominator: s, 1 .. MAX_DENOMINATOR.
        size: How many.
        rng: Where the integers come from.

    Returns:
        Independent draws, shape (size,).

    Raises:
        TaskError: The scale is out of range.

    Cost: some 12 integers a draw.
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


def discrete_gaussian(
    sigma_squared: Fraction, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """
    Draw noise with P(x) ∝ e^(-x² / 2σ²) [CKS20].

    Laplace noise Y of scale t = ⌊σ⌋ + 1 is kept with chance e^(-(|Y| - σ²/t)² / 2σ²). For central
    baselines: a few thousand draws, in integers of any size.

    Args:
        sigma_squared: σ², above 0; not quite the variance where it is small.
        size: How many.
        rng: Where the integers come from.

    Returns:
        Independent draws, shape (size,).

    Raises:
        TaskError: σ² is not above 0, or σ not below MAX_DENOMINATOR.

    Cost: some microseconds a draw.
    """
    if not 0 < sigma_squared < MAX_DENOMINATOR**2:
        raise TaskError(
            f"the square of the noise's scale is {float(sigma_squared):g}; it must be above 0 and "
            f"below {MAX_DENOMINATOR**2}"
        )
    scale = math.isqrt(math.floor(sigma_squared)) + 1
    over, under = sigma_squared.as_integer_ratio()
    drawn = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        noise = discrete_laplace(scale, 1, size - done, rng)
        # (|Y| - σ²/t)² / 2σ² with σ² = over/under.
        apart = np.abs(noise).astype(np.object_) * (under * scale) - over
        kept = noise[_big_exponential_coins(apart**2, 2 * over * under * scale**2, rng)]
        drawn[done : done + len(kept)] = kept
        done += len(kept)
    return drawn


def exponential_coins(
    numerators: NDArray[np.int64], denominator: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """
    Toss coins that show heads with chance e^(-γ) exactly, 0 ≤ γ ≤ 1 [CKS20].

    Of coins with chances γ/1, γ/2, γ/3, .. the first tail is at an odd place just as often.

    Args:
        numerators: γ · denominator of each coin, each 0 .. denominator; shape (n,).
        denominator: 1 .. MAX_DENOMINATOR.
        rng: Where the integers come from.

    Returns:
        Heads and tails, shape (n,).
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
    """Count how often a coin with chance 1/e shows heads before it shows tails."""
    counts = np.zeros(size, dtype=np.int64)
    tossing = np.arange(size)
    while len(tossing):
        tossing = tossing[exponential_coins(np.ones(len(tossing), dtype=np.int64), 1, rng)]
        counts[tossing] += 1
    return counts


def _big_exponential_coins(
    numerators: Big, denominator: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Toss coins with chance e^(-γ) for any γ ≥ 0 and integers of any size."""
    whole, rest = numerators // denominator, numerators % denominator
    heads = np.ones(len(numerators), dtype=np.bool_)
    # e^(-γ) = e^(-1) .. e^(-1) · e^(-rest): as many heads in a row as γ has whole units.
    row = _heads_in_a_row(len(numerators), rng)
    heads &= np.array([one >= other for one, other in zip(row, whole, strict=True)], dtype=np.bool_)
    tossing = np.flatnonzero(heads)
    first_tail = np.zeros(len(numerators), dtype=np.int64)
    place = 1
    while len(tossing):
        shown = _big_coins(rest[tossing], denominator * place, rng)
        first_tail[tossing[~shown]] = place
        tossing = tossing[shown]
        place += 1
    heads &= first_tail % 2 == 1
    return heads


def _big_coins(numerators: Big, denominator: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """
    Toss coins with chance numerator / denominator, for integers of any size.

    A uniform number in 0 .. 1 is compared with the chance, 62 bits at a time, as far as they agree.
    """
    heads = np.zeros(len(numerators), dtype=np.bool_)
    pending: Any = np.arange(len(numerators))
    rest = numerators
    while len(pending):
        shifted = rest * (1 << _WORD_BITS)
        word = (shifted // denominator).astype(np.int64)
        rest = shifted % denominator
        draw = rng.integers(0, 1 << _WORD_BITS, size=len(pending), dtype=np.int64)
        heads[pending[draw < word]] = True
        undecided = (draw == word) & (rest != 0)
        pending, rest = pending[undecided], rest[undecided]
    return heads
