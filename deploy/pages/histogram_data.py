"""A histogram as the result page's scripts read it: compact, and ready to be shown."""

import base64
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.messages.estimate import Histogram, interval_reach
from deploy.results.estimate_columns import COLUMNS

MOST_VALUES: Final = 100_000
"""Most values of a page: two megabytes of figures, which a browser sorts at once."""


def histogram_data(
    histogram: Histogram,
    *,
    n_users: int,
    labels: Sequence[str] = (),
    truth: NDArray[np.float64] | None = None,
    confidence: float = 0.95,
) -> dict[str, Any]:
    """
    Return what the page embeds; figures are rounded to 32-bit floating point numbers.

    Of more than MOST_VALUES values the page holds the largest estimates.

    Args:
        histogram: Of domain_size values.
        n_users: Number of users.
        labels: Names of the values, as many, or none. Untrusted text.
        truth: True shares, shape (domain_size,), where they are known.
        confidence: Of the interval of each value by itself.
    """
    size = len(histogram.frequencies)
    held = np.arange(size)
    if size > MOST_VALUES:
        held = np.sort(np.argpartition(histogram.frequencies, -MOST_VALUES)[-MOST_VALUES:])
    return {
        "columns": COLUMNS,
        "size": size,
        "users": n_users,
        "confidence": confidence,
        "interval_factors": {
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


def _packed(numbers: NDArray[Any], dtype: str) -> str:
    """Write numbers as base64, a third of their length in digits."""
    return base64.b64encode(np.ascontiguousarray(numbers, dtype=dtype).tobytes()).decode()
