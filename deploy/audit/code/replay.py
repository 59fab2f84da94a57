"""
Orders made again from what was drawn for them: a batch must stand exactly as its draws say.

A test of one order sees what many reports have in common; it does not see one report that was
moved. Whoever knows the draws knows where each report must stand.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Order = NDArray[np.int64]
"""Place of arrival of each report, in the order of departure."""


class Recording(np.random.Generator):
    """A generator that remembers the orders and the bounded integers that it drew."""

    def __init__(self, bits: np.random.BitGenerator) -> None:
        super().__init__(bits)
        self.orders: list[Order] = []
        self.integers_drawn: list[NDArray[Any]] = []

    def permutation(self, x: Any, axis: int = 0) -> Any:  # noqa: ANN401  # as numpy's
        """Draw an order."""
        drawn = super().permutation(x, axis)
        self.orders.append(np.array(drawn, dtype=np.int64))  # a copy: callers may change theirs
        return drawn

    def integers(self, *args: Any, **fields: Any) -> Any:  # noqa: ANN401  # as numpy's
        """Draw bounded integers."""
        drawn = super().integers(*args, **fields)
        self.integers_drawn.append(np.array(drawn))
        return drawn


def ordered_at_once(source: Recording, n: int) -> Order | None:
    """Give the order that the draws say of n reports in memory; None if they say none."""
    if len(source.orders) != 1 or len(source.orders[0]) != n:
        return None
    return source.orders[0]


def ordered_in_buckets(source: Recording, n: int) -> Order | None:
    """
    Give the order that the draws say of n reports that were thrown into buckets: each bucket holds
    what was thrown into it, in the order of arrival, and is permuted by itself. None if the draws
    say none.
    """
    thrown = np.concatenate([np.empty(0, dtype=np.int64), *source.integers_drawn])
    if len(thrown) != n:
        return None
    parts, sizes = [], np.bincount(thrown.astype(np.int64), minlength=len(source.orders))
    if [len(order) for order in source.orders] != sizes.tolist():
        return None
    for bucket, order in enumerate(source.orders):
        parts.append(np.flatnonzero(thrown == bucket)[order])
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def follows(places: Order, order: Order) -> bool:
    """
    Say whether a batch stands as one drawn order says.

    Args:
        places: For each report of the delivery its place among the users' that lay there; -1 of
            one that the shuffler added.
        order: What was drawn for as many reports.

    Put back where they were before the order, users' reports ascend: all of them without a gap
    where none was dropped, which the number of reports tells; what was added lies behind them.
    """
    if len(places) != len(order):
        return False
    before = np.empty_like(places)
    before[order] = places
    added = before < 0
    users = before[~added]
    return bool((np.diff(users) > 0).all()) and not added[: len(users)].any()
