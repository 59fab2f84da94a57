"""Choices by a trusted collector: the most frequent items, and a median or another quantile."""

import math
from fractions import Fraction

import numpy as np

from common.errors import AccountingError, ValueRangeError
from common.mechanisms.base import Counts, Vector
from deploy.simulate.baselines.selection import Method, Selection

MAX_POINTS = 2**20
"""Points of a grid that a quantile is chosen among."""


def most_frequent(
    counts: Counts,
    epsilon: float,
    rng: np.random.Generator,
    method: Method = "permute-and-flip",
) -> int:
    """
    Choose an item that nearly most people have.

    Replacing one person moves every count by 1 at most.

    Args:
        counts: Of people by item.
        epsilon: Of the choice.
        rng: Source of randomness.
        method: How.
    """
    return Selection(epsilon, method).choose(counts, rng)


def top(counts: Counts, size: int, epsilon: float, rng: np.random.Generator) -> list[int]:
    """
    Choose several items one after the other, each at ε/size among those that are left.

    Returns:
        Items, the first chosen first: `epsilon` for all of them together, by composition.

    Raises:
        AccountingError: There are not as many items.
    """
    if not 1 <= size <= len(counts):
        raise AccountingError(f"{size} items of {len(counts)} cannot be chosen")
    selection = Selection(part_of(epsilon, size))
    left = np.arange(len(counts))
    chosen = []
    for _ in range(size):
        place = selection.choose(counts[left], rng)
        chosen.append(int(left[place]))
        left = np.delete(left, place)
    return chosen


def part_of(epsilon: float, parts: int) -> float:
    """Give ε/parts, rounded down: so many of it cost no more than ε."""
    return math.nextafter(epsilon / parts, 0.0)


def regret(counts: Counts, epsilon: float, method: Method = "permute-and-flip") -> float:
    """
    Give how much less frequent the chosen item is than the most frequent one, in shares.

    Expected, and exact: what a comparison refers to where only the best item is asked for.
    """
    return Selection(epsilon, method).expected_gap(counts) / float(counts.sum())


def quantile_utilities(values: Vector, share: Fraction, points: int) -> Counts:
    """
    Say how many people are on the wrong side of each point of a grid over -1 .. 1, as below 0.

    The rank r that is asked for is share · n, to the nearest. A point with b people below it and a
    people at or below it lacks r - a, or has b - r too many; replacing one person moves a and b by
    1 at most.

    Args:
        values: Numbers in -1 .. 1, shape (n,), at least one; each is moved to the nearest point.
        share: Of people who are to be below; 1/2 is the median.
        points: Of the grid, both ends included.

    Raises:
        ValueRangeError: A number is not in -1 .. 1, or there is nobody.
        AccountingError: The share or the points are out of range.
    """
    if not 0 <= share <= 1:
        raise AccountingError(f"the share is {share}; it must lie between 0 and 1")
    if not 2 <= points <= MAX_POINTS:  # noqa: PLR2004  # two ends
        raise AccountingError(f"the grid has {points} points; it may have 2 to {MAX_POINTS}")
    if len(values) == 0 or not (np.abs(values) <= 1).all():
        raise ValueRangeError("numbers must lie in the range, and there must be one")
    moved = np.rint((values + 1) / 2 * (points - 1)).astype(np.int64)
    here = np.bincount(moved, minlength=points)
    at_most = np.cumsum(here)
    rank = round(share * len(values))
    wrong = np.maximum(0, np.maximum(rank - at_most, at_most - here - rank))
    return np.asarray(-wrong, dtype=np.int64)


def quantile(
    values: Vector,
    share: Fraction,
    epsilon: float,
    rng: np.random.Generator,
    points: int = 2**12 + 1,
) -> float:
    """
    Choose a number in -1 .. 1 that nearly this share of people are below [Smi11].

    Args:
        values: Numbers in -1 .. 1, shape (n,).
        share: As of `quantile_utilities`.
        epsilon: Of the choice.
        rng: Source of randomness.
        points: Of the grid that it is chosen among.

    Raises:
        ValueRangeError: As of `quantile_utilities`.
        AccountingError: As of `quantile_utilities`.
    """
    utilities = quantile_utilities(values, share, points)
    return Selection(epsilon).choose(utilities, rng) / (points - 1) * 2 - 1
