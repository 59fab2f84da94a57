"""Data sets that are made: a law's own histogram of so many people, without chance."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.task.ranges import within
from deploy.datasets.catalogue import MAX_ITEMS, MAX_PEOPLE, Dataset

DEFAULT_USERS: Final = 1_000_000
DEFAULT_EXPONENT: Final = 1.1
MAX_EXPONENT: Final = 20.0


def zipf(size: int, exponent: float, n_users: int) -> Dataset:
    """
    Make the people of a Zipf law: item r has a share proportional to (r + 1)^-exponent.

    Args:
        size: Items, 2 .. MAX_ITEMS.
        exponent: 0 .. MAX_EXPONENT; 0 is uniform.
        n_users: People, 1 .. MAX_PEOPLE.

    Raises:
        TaskError: One of them is out of range.
    """
    within("the items of a Zipf law", size, 2, MAX_ITEMS)
    if not 0 <= exponent <= MAX_EXPONENT:
        raise TaskError(f"exponent is {exponent}; it must lie between 0 and {MAX_EXPONENT:g}")
    weights = np.arange(1, size + 1, dtype=np.float64)
    np.power(weights, -exponent, out=weights)
    return Dataset(
        name=f"zipf:{size},{exponent:g}",
        title=f"Synthetic: Zipf law of exponent {exponent:g} over {size:,} items",
        labels=(),
        counts=_apportion(weights, n_users),
    )


def uniform(size: int, n_users: int) -> Dataset:
    """
    Make people spread evenly over the items.

    Args:
        size: Items, 2 .. MAX_ITEMS.
        n_users: People, 1 .. MAX_PEOPLE; what does not divide goes to the first items.

    Raises:
        TaskError: One of them is out of range.
    """
    within("the items of a uniform law", size, 2, MAX_ITEMS)
    return Dataset(
        name=f"uniform:{size}",
        title=f"Synthetic: uniform over {size:,} items",
        labels=(),
        counts=_apportion(np.ones(size), n_users),
    )


def _apportion(weights: NDArray[np.float64], n_users: int) -> NDArray[np.int64]:
    """
    Share people out by the largest remainders; equal ones go to the items that come first.

    The weights are used up: three arrays of this size are held at once, no more.
    """
    within("users", n_users, 1, MAX_PEOPLE)
    weights /= weights.sum()
    weights *= n_users
    counts = weights.astype(np.int64)
    left = n_users - int(counts.sum())
    np.subtract(counts, weights, out=weights)
    counts[np.argsort(weights, kind="stable")[:left]] += 1
    return counts
