"""The view of a result: tables for people, columns and fields for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from common.errors import SettingsError
from common.mechanisms.base import Vector
from common.messages.result import (
    BitTable,
    Estimate,
    Histogram,
    Interval,
    KeyValues,
    Means,
    interval_reach,
)
from common.task.specs import KeyValueSpec, NumberSpec, spec_as
from common.task.task import Task
from deploy.datasets.sample_people import SamplePeople
from deploy.results.candidates import decode_candidates
from deploy.results.estimate_table import CONFIDENCE, INTERVAL, NOISE_ALONE, EstimateTable
from deploy.terminal.json_output import number_or_text

MAX_ROWS: Final = 2000
"""Most rows of a page's table."""
_SHRUNK_FROM: Final = 3
"""Fewer numbers have nothing to be shrunk by; see analyzer/estimation/projection.py."""
_TOO_FEW: Final = "Too few users for this much noise: nothing can be concluded about single values."
_NO_CANDIDATES: Final = (
    "These counts can be searched for texts: give a file of candidates with --candidates, one a "
    "line."
)
_OWN_INTERVAL: Final = "Each interval covers its true {} with 95 % probability, by itself"
_SHARES_NOTE: Final = (
    ": of many values, some are missed. Refined shares are no less than 0 and sum to 1."
)
_DETECTED: Final = (
    "{:,} of {:,} candidates were detected. The probability that any of these is held by no one "
    "is 5 % at most (Bonferroni)."
)

Columns = dict[str, Sequence[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultView:
    """Tables and sentences for people, columns and fields for programs."""

    tables: tuple[EstimateTable, ...] = ()
    columns: Columns
    """For CSV and Parquet, a row a figure, in full precision."""
    warning: str = ""
    """Why there are no tables, or why they say little."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """For JSON, beside the estimate's own."""
    errors: str = ""
    """In a demo: a sentence on the errors against the truth."""
    error_fields: Mapping[str, Any] = field(default_factory=dict)
    """Those errors for JSON; `mse_vs_truth` is among them."""

    @property
    def size(self) -> int:
        """Number of estimated figures."""
        return len(self.tables[0].names) if self.tables else 0

    @property
    def truth(self) -> Vector | None:
        """True shares or means, in a demo only."""
        return self.tables[0].truth if self.tables else None


def result_view(
    estimate: Estimate,
    task: Task,
    *,
    most: int,
    candidates: Sequence[str] = (),
    people: SamplePeople | None = None,
) -> ResultView:
    """
    Build the view of a result.

    Args:
        estimate: The released estimate.
        task: The task it was collected under.
        most: Rows of each table.
        candidates: Texts to look for, in a task that collects texts. Default: its labels.
        people: The contributors, in a demo: the truth stands beside each estimate.

    Raises:
        SettingsError: There are candidates, and the task collects no texts.
        TaskError: The task has too few cohorts for so many candidates.
        ValueRangeError: A candidate is too long, or is not one of the labels.
    """
    if isinstance(estimate, BitTable):
        return _texts(estimate, task, most, candidates, people)
    if candidates:
        raise SettingsError(f"candidates are texts; the task collects {task.kind} data")
    if isinstance(estimate, Histogram):
        return _histogram(estimate, task, most, people.truth if people else None)
    if isinstance(estimate, Means):
        return _means(estimate, task, most, people.truth if people else None)
    return _key_values(estimate, task, most, people)


def _histogram(found: Histogram, task: Task, most: int, truth: Vector | None) -> ResultView:
    shares, size = found.frequencies, len(found.frequencies)
    labels, refined = _labels(task, size), found.refined.tolist()
    shown, part = _largest(shares, truth, most)
    errors, error_fields = "", {}
    if truth is not None:
        mse, covered = _mse(shares, truth), _covered(found.interval(CONFIDENCE), truth)
        error_fields = {"mse_vs_truth": mse}
        errors = (
            f"Mean squared error {mse:.3g}, in theory {found.mse_theory:.3g}; refined "
            f"{_mse(found.refined, truth):.3g}. {covered}"
        )
    table = EstimateTable(
        title=f"The share of users with each of {size:,} values{part}",
        name="value",
        value="share",
        names=labels,
        values=shares,
        errors=found.standard_errors,
        shown=shown,
        more={"refined": refined},
        truth=truth,
        notes=(_OWN_INTERVAL.format("share") + _SHARES_NOTE,),
    )
    return ResultView(
        tables=(table,),
        columns={
            "item": range(size),
            "label": labels,
            **table.columns(),
            "refined": refined,
        },
        warning="" if found.tells_values_apart(CONFIDENCE) else _TOO_FEW,
        errors=errors,
        error_fields=error_fields,
    )


def _means(found: Means, task: Task, most: int, truth: Vector | None) -> ResultView:
    means, size, shrunk = found.means, len(found.means), found.shrunk.tolist()
    errors, error_fields = "", {}
    if truth is not None:
        mse, mse_shrunk = _mse(means, truth), _mse(found.shrunk, truth)
        error_fields = {"mse_vs_truth": mse, "mse_shrunk_vs_truth": mse_shrunk}
        theory, covered = f"of which noise {found.mse_theory:.3g} in theory", ""
        if found.unbiased:
            theory = f"in theory {found.mse_theory:.3g}"
            covered = f" {_covered(found.interval(CONFIDENCE), truth)}"
        errors = f"Mean squared error {mse:.3g}, {theory}; shrunk {mse_shrunk:.3g}.{covered}"
    more = {"standard error": found.standard_errors.tolist()}
    note = f"{_OWN_INTERVAL.format('mean')}."
    if size >= _SHRUNK_FROM:
        more["shrunk"] = shrunk
        note += " The shrunk mean has a smaller error over all numbers, but is biased."
    if not found.unbiased:
        note = "Means are biased: the error of projecting vectors is in no interval."
    table = EstimateTable(
        title=f"The mean of {'a number' if size == 1 else f'each of {size:,} numbers'}"
        + _part(size, most, "first"),
        name="number",
        value="mean",
        interval=INTERVAL if found.unbiased else NOISE_ALONE,
        names=["mean"] if size == 1 and not task.labels else _labels(task, size, "number "),
        values=means,
        errors=found.standard_errors,
        shown=range(min(most, size)),
        more=more,
        truth=truth,
        notes=(note,),
    )
    spec = spec_as(task.mechanism, NumberSpec)
    return ResultView(
        tables=(table,),
        columns={
            "number": range(size),
            "label": _labels(task, size),
            **table.columns(),
            "shrunk": shrunk,
        },
        fields={"low": spec.low, "high": spec.high},
        errors=errors,
        error_fields=error_fields,
    )


def _key_values(found: KeyValues, task: Task, most: int, people: SamplePeople | None) -> ResultView:
    spec, size = spec_as(task.mechanism, KeyValueSpec), len(found.means_with_fakes)
    shares, means = (people.truth, people.true_means) if people else (None, None)
    reported, owners = np.flatnonzero(found.reports), found.owners
    notes = []
    if len(reported) < size:
        unreported = size - len(reported)
        notes = [f"No user reported on {unreported:,} of the keys: nothing is known of them."]
    if owners is not None:
        reported = reported[np.argsort(-owners.frequencies[reported], kind="stable")]
    reports, columns = found.reports.tolist(), {"key": range(size), "label": _labels(task, size)}
    errors, error_fields = "", {}

    def table(title: str, values: Vector, errors: Vector, **others: Any) -> EstimateTable:  # noqa: ANN401  # its
        return EstimateTable(
            title=title + _part(size, len(reported[:most]), "most owned" if owners else "first"),
            name="key",
            names=_labels(task, size, "key "),
            values=values,
            errors=errors,
            shown=reported[:most].tolist(),
            more={"standard error": errors.tolist(), "reports": [f"{n:,}" for n in reports]},
            **others,
        )

    if owners is None:
        note = (
            "This task does not ask who owns a key. Users without the key answer with a fake "
            "value; how far fakes pull a mean is in no interval."
        )
        tables = [
            table(
                f"The mean of the reports on each of {size:,} keys, fakes included",
                found.means_with_fakes,
                found.errors_with_fakes,
                value="mean with fakes",
                interval=NOISE_ALONE,
                truth=means,
                notes=(note, *notes),
            )
        ]
        if means is not None:
            mse = _mse(found.means_with_fakes, means)
            error_fields = {"mse_vs_truth": mse}
            errors = f"Mean squared error of means, fakes included, {mse:.3g}."
    else:
        note = (
            "A key that is not owned is sometimes reported with a fake value. The estimate "
            "corrects means for it by the shares; a key that few own leaves it little to go by."
        )
        tables = [
            table(
                f"The share of users who own each of {size:,} keys",
                owners.frequencies,
                owners.frequency_errors,
                value="share",
                truth=shares,
                notes=(f"{_OWN_INTERVAL.format('share')}.", *notes),
            ),
            table(
                "The mean of the values of those who own it",
                owners.means,
                owners.mean_errors,
                value="mean",
                truth=means,
                notes=(note,),
            ),
        ]
        columns |= tables[0].columns() | tables[1].columns("mean_")
        if shares is not None and means is not None:
            mse, mse_of_means = _mse(owners.frequencies, shares), _mse(owners.means, means)
            error_fields = {"mse_vs_truth": mse, "mse_of_means_vs_truth": mse_of_means}
            errors = f"Mean squared error of shares {mse:.3g}, of means {mse_of_means:.3g}."
    return ResultView(
        tables=tuple(tables),
        columns={
            **columns,
            "mean_with_fakes": found.means_with_fakes.tolist(),
            "error_with_fakes": found.errors_with_fakes.tolist(),
            "reports": reports,
        },
        fields={"low": spec.low, "high": spec.high, "population": task.population},
        errors=errors,
        error_fields=error_fields,
    )


def _texts(
    found: BitTable, task: Task, most: int, candidates: Sequence[str], people: SamplePeople | None
) -> ResultView:
    asked = candidates or (people.candidates if people else ()) or task.labels
    cohorts, bits = found.bit_counts.shape
    columns: Columns = {
        "cohort": np.repeat(np.arange(cohorts), bits).tolist(),
        "bit": np.tile(np.arange(bits), cohorts).tolist(),
        "set": found.bit_counts.ravel().tolist(),
        "reports": np.repeat(found.cohort_sizes, bits).tolist(),
    }
    if not asked:
        return ResultView(columns=columns, warning=_NO_CANDIDATES)
    decoding, size = decode_candidates(task, found, asked), len(asked)
    shares, p_values = decoding.shares, decoding.p_values.tolist()
    detected, n_detected = decoding.detected.tolist(), int(decoding.detected.sum())
    fields = {
        "candidates": list(asked),
        "shares": shares.tolist(),
        "standard_errors": [number_or_text(error) for error in decoding.share_errors.tolist()],
        "p_values": p_values,
        "detected": detected,
    }
    note = "Every text is one of the task's labels: shares differ from a sum of 1 by noise."
    if not decoding.exhaustive:
        half_width = interval_reach(CONFIDENCE) * decoding.unexplained_error
        note = (
            f"Unexplained: {100 * decoding.unexplained:.2f} ± {100 * half_width:.2f} % of the "
            "users hold a text that is not a candidate."
        )
        fields |= {
            "explained": 1 - decoding.unexplained,
            "unexplained": decoding.unexplained,
            "unexplained_standard_error": decoding.unexplained_error,
        }
    truth, errors, error_fields = None, "", dict[str, Any]()
    if people is not None:
        truth, mse = people.truth, _mse(shares, people.truth)
        n_false = int((decoding.detected & (truth == 0)).sum())
        errors = (
            f"Mean squared error of a share {mse:.3g}. {n_detected} candidates were detected, "
            f"{n_false} of them held by no one; {int((truth > 0).sum())} are held by someone."
        )
        error_fields = {
            "mse_vs_truth": mse,
            "detected": n_detected,
            "false_discoveries": n_false,
            "shares": shares.tolist(),
        }
    shown, part = _largest(shares, truth, most)
    table = EstimateTable(
        title=f"The share of users who hold each of {size:,} candidates{part}",
        name="text",
        value="share",
        names=asked,
        values=shares,
        errors=decoding.share_errors,
        shown=shown,
        more={
            "p-value": [f"{chance:.2g}" for chance in p_values],
            "detected": ["yes" if each else "no" for each in detected],
        },
        truth=truth,
        notes=(_DETECTED.format(n_detected, size), note),
    )
    if candidates:
        columns = {"text": asked, **table.columns(), "p_value": p_values, "detected": detected}
    return ResultView(
        tables=(table,), columns=columns, fields=fields, errors=errors, error_fields=error_fields
    )


def _labels(task: Task, size: int, before: str = "") -> Sequence[str]:
    """Return a task's labels, or numbers where it has none."""
    return task.labels or [f"{before}{place}" for place in range(size)]


def _part(size: int, n_shown: int, which: str) -> str:
    return f", the {n_shown:,} {which}" if n_shown < size else ""


def _largest(shares: Vector, truth: Vector | None, most: int) -> tuple[list[int], str]:
    """Return the places of the largest shares, in a demo of the true ones, and a title's end."""
    order = np.argsort(-(shares if truth is None else truth), kind="stable")[:most]
    which = "largest" if truth is None else "largest in truth"
    return order.tolist(), _part(len(shares), most, which)


def _covered(interval: Interval, truth: Vector) -> str:
    low, high = interval
    covered = int(((low <= truth) & (truth <= high)).sum())
    return f"{covered:,} of {len(truth):,} intervals cover the truth."


def _mse(estimate: Vector, truth: Vector) -> float:
    return float(np.mean((estimate - truth) ** 2))
