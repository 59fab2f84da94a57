"""Every figure of an estimate, a row each, in full precision: what CSV and Parquet hold."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from common.messages.estimate import BitTable, Estimate, Histogram, KeyValues, Means, Owners

CONFIDENCE: Final = 0.95
"""Of the intervals, each by itself."""
COLUMNS: Final = (
    "item",
    "label",
    "share",
    "standard_error",
    "interval_low",
    "interval_high",
    "refined",
)
"""Of a histogram; also of the CSV that a result's page makes."""

Columns = dict[str, Sequence[object]]


def columns_of(estimate: Estimate, labels: Sequence[str]) -> Columns:
    """
    Give an estimate's columns by name, in their order.

    Args:
        estimate: Of any kind.
        labels: The task's names of items, numbers or keys; their numbers stand in where it has
            none.
    """
    if isinstance(estimate, BitTable):
        return _of_bits(estimate)
    if isinstance(estimate, Histogram):
        low, high = estimate.interval(CONFIDENCE)
        figures = (estimate.frequencies, estimate.standard_errors, low, high, estimate.refined)
        named = labels_of(labels, len(estimate.frequencies))
        columns = (range(len(named)), named, *(column.tolist() for column in figures))
        return dict(zip(COLUMNS, columns, strict=True))
    if isinstance(estimate, Means):
        return _of_means(estimate, labels)
    return _of_pairs(estimate, labels)


def labels_of(labels: Sequence[str], n_items: int) -> Sequence[str]:
    """Give a task's labels, or numbers where it has none."""
    return labels or [str(item) for item in range(n_items)]


def ends_of(estimate: Estimate) -> tuple[str, str]:
    """Name the ends of what is around a figure: an interval, or what noise alone reaches."""
    biased = isinstance(estimate, Means) and not estimate.unbiased
    return ("noise_low", "noise_high") if biased else ("interval_low", "interval_high")


def _of_means(means: Means, labels: Sequence[str]) -> Columns:
    low, high = means.interval(CONFIDENCE)
    below, above = ends_of(means)
    named = labels_of(labels, len(means.means))
    return {
        "number": range(len(named)),
        "label": named,
        "mean": means.means.tolist(),
        "standard_error": means.standard_errors.tolist(),
        below: low.tolist(),
        above: high.tolist(),
        "shrunk": means.shrunk.tolist(),
    }


def _of_pairs(found: KeyValues, labels: Sequence[str]) -> Columns:
    named = labels_of(labels, len(found.means_with_fakes))
    return {
        "key": range(len(named)),
        "label": named,
        **({} if found.owners is None else _of_owners(found.owners)),
        "mean_with_fakes": found.means_with_fakes.tolist(),
        "error_with_fakes": found.errors_with_fakes.tolist(),
        "reports": found.reports.tolist(),
    }


def _of_owners(owners: Owners) -> Columns:
    low, high = owners.frequency_interval(CONFIDENCE)
    mean_low, mean_high = owners.mean_interval(CONFIDENCE)
    return {
        "share": owners.frequencies.tolist(),
        "standard_error": owners.frequency_errors.tolist(),
        "interval_low": low.tolist(),
        "interval_high": high.tolist(),
        "mean": owners.means.tolist(),
        "mean_standard_error": owners.mean_errors.tolist(),
        "mean_interval_low": mean_low.tolist(),
        "mean_interval_high": mean_high.tolist(),
    }


def _of_bits(table: BitTable) -> Columns:
    cohorts, bits = table.bit_counts.shape
    return {
        "cohort": np.repeat(np.arange(cohorts), bits).tolist(),
        "bit": np.tile(np.arange(bits), cohorts).tolist(),
        "set": table.bit_counts.ravel().tolist(),
        "reports": np.repeat(table.cohort_sizes, bits).tolist(),
    }
