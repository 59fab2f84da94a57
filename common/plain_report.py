"""The report that names an item: of plain mechanisms, and of the shuffler's dummies."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

PLAIN_REPORT: Final = np.dtype([("item", "<u4")])


def plain_reports(items: NDArray[np.int64]) -> NDArray[np.void]:
    """Lay items out as reports: shape (n,), field item (uint32)."""
    reports = np.empty(items.shape, dtype=PLAIN_REPORT)
    reports["item"] = items
    return reports
