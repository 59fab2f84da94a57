"""The columns of an estimate, a row a figure, in full precision: what CSV and Parquet hold."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from common.mechanisms.base import Vector
from common.messages.estimate import (
    BitTable,
    Estimate,
    Histogram,
    KeyValues,
    Means,
    interval_around,
)
from deploy.results.rappor.decoder import Decoding

CONFIDENCE: Final = 0.95
"""Of every interval, each by itself."""
COLUMNS: Final = (
    *("item", "label", "share", "standard_error", "interval_low", "interval_high"),
    "refined",
)
"""Of a histogram; also of the CSV that a result's page makes."""
_ENDS: Final = ("interval_low", "interval_high")
_NOISE_ENDS: Final = ("noise_low", "noise_high")
"""Around biased figures: an interval of noise alone covers no truth with any confidence."""

Columns = dict[str, Sequence[object]]


def columns_of(estimate: Estimate, labels: Sequence[str]) -> Columns:
    """
    Return an estimate's columns by name, in order.

    Args:
        estimate: Of any kind.
        labels: The task's names of items, numbers or keys; without any, their numbers.
    """
    if isinstance(estimate, BitTable):
        return _bit_columns(estimate)
    if isinstance(estimate, Histogram):
        return {
            **_names("item", len(estimate.frequencies), labels),
            **_figures("share", estimate.frequencies, estimate.standard_errors),
            "refined": estimate.refined.tolist(),
        }
    if isinstance(estimate, Means):
        ends = _ENDS if estimate.unbiased else _NOISE_ENDS
        return {
            **_names("number", len(estimate.means), labels),
            **_figures("mean", estimate.means, estimate.standard_errors, ends=ends),
            "shrunk": estimate.shrunk.tolist(),
        }
    return _key_columns(estimate, labels)


def candidate_columns(decoding: Decoding) -> Columns:
    """Return every figure of each candidate text, in the order of the candidates."""
    return {
        "text": decoding.candidates,
        **_figures("share", decoding.shares, decoding.standard_errors / decoding.n_reports),
        "p_value": decoding.p_values.tolist(),
        "detected": decoding.detected.tolist(),
    }


def labels_of(labels: Sequence[str], size: int) -> Sequence[str]:
    """Return a task's labels, or numbers where it has none."""
    return labels or [str(place) for place in range(size)]


def _names(name: str, size: int, labels: Sequence[str]) -> Columns:
    return {name: range(size), "label": labels_of(labels, size)}


def _figures(
    name: str, values: Vector, errors: Vector, *, prefix: str = "", ends: tuple[str, str] = _ENDS
) -> Columns:
    low, high = interval_around(values, errors, CONFIDENCE)
    return {
        name: values.tolist(),
        f"{prefix}standard_error": errors.tolist(),
        f"{prefix}{ends[0]}": low.tolist(),
        f"{prefix}{ends[1]}": high.tolist(),
    }


def _key_columns(estimate: KeyValues, labels: Sequence[str]) -> Columns:
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


def _bit_columns(table: BitTable) -> Columns:
    cohorts, bits = table.bit_counts.shape
    return {
        "cohort": np.repeat(np.arange(cohorts), bits).tolist(),
        "bit": np.tile(np.arange(bits), cohorts).tolist(),
        "set": table.bit_counts.ravel().tolist(),
        "reports": np.repeat(table.cohort_sizes, bits).tolist(),
    }
