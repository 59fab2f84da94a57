"""A histogram as the result page's scripts read it: compact, and ready to be shown."""

import base64
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.messages.estimate import Histogram, interval_reach
from deploy.results.estimate_columns import COLUMNS

MOST_VALUES: Final = 100_000
"""Most values that a page holds: two megabytes of figures, which a browser sorts at once."""


def histogram_data(
    histogram: Histogram,
    *,
    n_users: int,
    labels: Sequence[str] = (),
    truth: NDArray[np.float64] | None = None,
    confidence: float = 0.95,
) -> dict[str, Any]:
    """
    Give what the page embeds. Figures are rounded to 32-bit floating point numbers.

    Of more than MOST_VALUES values the largest estimates are held.

    Args:
        histogram: Of domain_size values.
        n_users: Whose shares they are.
        labels: Names of the values, as many, or none. Any text.
        truth: True shares, shape (domain_size,), where they are known.
        confidence: Of an interval, for each value by itself.
    """
    size = len(histogram.frequencies)
    held = _held(histogram.frequencies)
    return {
        "columns": COLUMNS,
        "size": size,
        "users": n_users,
        "confidence": confidence,
        "reach": {
            "own": interval_reach(confidence),
            "all": interval_reach(1 - (1 - confidence) / size),
        },
        "labels": [labels[item] for item in held.tolist()] if labels else None,
        "items": None if len(held) == size else _packed(held, "<u4"),
        "estimate": _packed(histogram.frequencies[held], "<f4"),
        "error": _packed(histogram.standard_errors[held], "<f4"),
        "refined": _packed(histogram.refined[held], "<f4"),
        "truth": None if truth is None else _packed(truth[held], "<f4"),
    }


def _held(frequencies: NDArray[np.float64]) -> NDArray[np.int64]:
    """Give the items that a page holds, in ascending order."""
    if len(frequencies) <= MOST_VALUES:
        return np.arange(len(frequencies))
    largest = np.argpartition(frequencies, -MOST_VALUES)[-MOST_VALUES:]
    return np.sort(largest)


def _packed(numbers: NDArray[Any], dtype: str) -> str:
    """Write numbers as base64, which is a third of their length in digits."""
    return base64.b64encode(np.ascontiguousarray(numbers, dtype=dtype).tobytes()).decode()
