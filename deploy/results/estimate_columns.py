"""The columns of an estimate, a row a figure, in full precision: what CSV and Parquet hold."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from common.mechanisms.base import Vector
from common.mechanisms.rappor.decoder import Decoding
from common.messages.result import (
    BitTable,
    Estimate,
    Histogram,
    Means,
    interval_around,
)

CONFIDENCE: Final = 0.95
"""Of every interval, each by itself."""
COLUMNS: Final = (
    *("item", "label", "share", "standard_error", "interval_low", "interval_high"),
    "refined",
)
"""Of a histogram; also of the CSV that a result's page makes."""

Columns = dict[str, Sequence[object]]


def columns_of(estimate: Estimate, labels: Sequence[str]) -> Columns:
    """
    Return an estimate's columns by name, in order.

    Args:
        estimate: Of any kind.
        labels: The task's names of items, numbers or keys; without any, their numbers.
    """
    if isinstance(estimate, BitTable):
        cohorts, bits = estimate.bit_counts.shape
        return {
            "cohort": np.repeat(np.arange(cohorts), bits).tolist(),
            "bit": np.tile(np.arange(bits), cohorts).tolist(),
            "set": estimate.bit_counts.ravel().tolist(),
            "reports": np.repeat(estimate.cohort_sizes, bits).tolist(),
        }
    if isinstance(estimate, Histogram):
        return {
            **_names("item", len(estimate.frequencies), labels),
            **_figures("share", estimate.frequencies, estimate.standard_errors),
            "refined": estimate.refined.tolist(),
        }
    if isinstance(estimate, Means):
        # Around biased figures an interval of noise alone covers no truth with any confidence.
        interval = "interval" if estimate.unbiased else "noise"
        return {
            **_names("number", len(estimate.means), labels),
            **_figures("mean", estimate.means, estimate.standard_errors, interval=interval),
            "shrunk": estimate.shrunk.tolist(),
        }
    columns = _names("key", len(estimate.means_with_fakes), labels)
    owners = estimate.owners
    if owners is not None:
        columns |= _figures("share", owners.frequencies, owners.frequency_errors)
        columns |= _figures("mean", owners.means, owners.mean_errors, prefix="mean_")
    return columns | {
        "mean_with_fakes": estimate.means_with_fakes.tolist(),
        "error_with_fakes": estimate.errors_with_fakes.tolist(),
        "reports": estimate.reports.tolist(),
    }


def candidate_columns(decoding: Decoding) -> Columns:
    """Return every figure of each candidate text, in the order of the candidates."""
    return {
        "text": decoding.candidates,
        **_figures("share", decoding.shares, decoding.share_errors),
        "p_value": decoding.p_values.tolist(),
        "detected": decoding.detected.tolist(),
    }


def labels_of(labels: Sequence[str], size: int) -> Sequence[str]:
    """Return a task's labels, or numbers where it has none."""
    return labels or [str(place) for place in range(size)]


def _names(name: str, size: int, labels: Sequence[str]) -> Columns:
    return {name: range(size), "label": labels_of(labels, size)}


def _figures(
    name: str, values: Vector, errors: Vector, *, prefix: str = "", interval: str = "interval"
) -> Columns:
    low, high = interval_around(values, errors, CONFIDENCE)
    return {
        name: values.tolist(),
        f"{prefix}standard_error": errors.tolist(),
        f"{prefix}{interval}_low": low.tolist(),
        f"{prefix}{interval}_high": high.tolist(),
    }
