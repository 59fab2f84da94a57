"""
Orders made again from what was drawn for them: a batch, and an answer, must stand exactly as its
draws say.

A test of one order sees what many reports have in common; it does not see one report that was
moved. Whoever knows the draws knows where each report must stand.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Reports, null_reports

Order = NDArray[np.int64]
"""Place of arrival of each report, in the order of departure."""


class Recording(np.random.Generator):
    """A generator that remembers the orders, the bounded integers and the bytes that it drew."""

    def __init__(self, bits: np.random.BitGenerator) -> None:
        super().__init__(bits)
        self.orders: list[Order] = []
        self.integers_drawn: list[NDArray[Any]] = []
        self.bytes_drawn: list[bytes] = []

    def forget(self) -> None:
        """Remember nothing of what was drawn so far."""
        self.orders.clear()
        self.integers_drawn.clear()
        self.bytes_drawn.clear()

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

    def bytes(self, length: int) -> bytes:
        """Draw bytes."""
        self.bytes_drawn.append(super().bytes(length))
        return self.bytes_drawn[-1]


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


def answer_ordered(source: Recording, drawn: Sequence[Reports], per_user: int) -> Reports | None:
    """
    Give the reports of one answer in the order that the draws say; None if they say none.

    Args:
        source: What the order was drawn of.
        drawn: The own report, and then the dummies.
        per_user: How many reports an answer has; what is missing is padding, behind the dummies.
    """
    order, made = ordered_at_once(source, per_user), sum(map(len, drawn))
    if order is None or not drawn or made > per_user:
        return None
    padding = null_reports(per_user - made, drawn[0].dtype)
    reports: Reports = np.concatenate([*drawn, padding])[order]
    return reports


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
