"""The view of a result: tables, columns and fields, for every kind of value."""

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
from deploy.results.decoded_texts import decode_candidates, decoding_as_json
from deploy.results.estimate_columns import (
    CONFIDENCE,
    Columns,
    candidate_columns,
    columns_of,
    labels_of,
)
from deploy.results.estimate_table import INTERVAL, NOISE_ALONE, EstimateTable
from deploy.results.rappor.decoder import Decoding

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthErrors:
    """Errors of estimates against the truth, which only a demo knows."""

    sentence: str
    fields: Mapping[str, Any]
    """For programs; `mse_vs_truth` is among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultView:
    """Tables and sentences for people, columns and fields for programs."""

    tables: tuple[EstimateTable, ...]
    size: int
    """Number of estimated figures."""
    columns: Columns
    """For CSV and Parquet."""
    warning: str = ""
    """Why there are no tables, or why they say little."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """For JSON, beside the estimate's own."""
    errors: TruthErrors | None = None
    """In a demo only."""
    truth: Vector | None = None
    """True shares or means, in a demo only."""


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


def _histogram(histogram: Histogram, task: Task, most: int, truth: Vector | None) -> ResultView:
    shares, size, errors = histogram.frequencies, len(histogram.frequencies), None
    if truth is not None:
        mse, refined = _mse(shares, truth), _mse(histogram.refined, truth)
        errors = TruthErrors(
            sentence=f"Mean squared error {mse:.3g}, in theory {histogram.mse_theory:.3g}; refined "
            f"{refined:.3g}. {_covered(histogram.interval(CONFIDENCE), truth)}",
            fields={"mse_vs_truth": mse},
        )
    table = EstimateTable(
        title=f"The share of users with each of {size:,} values{_largest_of(size, most, truth)}",
        name="value",
        value="share",
        names=labels_of(task.labels, size),
        values=shares,
        errors=histogram.standard_errors,
        shown=_largest(shares if truth is None else truth, most),
        more={"refined": histogram.refined.tolist()},
        truth=truth,
        notes=(_OWN_INTERVAL.format("share") + _SHARES_NOTE,),
    )
    return ResultView(
        tables=(table,),
        size=size,
        columns=columns_of(histogram, task.labels),
        warning="" if histogram.tells_values_apart(CONFIDENCE) else _TOO_FEW,
        errors=errors,
        truth=truth,
    )


def _means(means: Means, task: Task, most: int, truth: Vector | None) -> ResultView:
    size, errors = len(means.means), None
    if truth is not None:
        mse, shrunk = _mse(means.means, truth), _mse(means.shrunk, truth)
        theory, covered = f"of which noise {means.mse_theory:.3g} in theory", ""
        if means.unbiased:
            theory = f"in theory {means.mse_theory:.3g}"
            covered = f" {_covered(means.interval(CONFIDENCE), truth)}"
        errors = TruthErrors(
            sentence=f"Mean squared error {mse:.3g}, {theory}; shrunk {shrunk:.3g}.{covered}",
            fields={"mse_vs_truth": mse, "mse_shrunk_vs_truth": shrunk},
        )
    more = {"standard error": means.standard_errors.tolist()}
    note = f"{_OWN_INTERVAL.format('mean')}."
    if size >= _SHRUNK_FROM:
        more["shrunk"] = means.shrunk.tolist()
        note += " The shrunk mean has a smaller error over all numbers, but is biased."
    if not means.unbiased:
        note = "Means are biased: the error of projecting vectors is in no interval."
    table = EstimateTable(
        title=f"The mean of {'a number' if size == 1 else f'each of {size:,} numbers'}"
        + _part(size, most, "first"),
        name="number",
        value="mean",
        interval=INTERVAL if means.unbiased else NOISE_ALONE,
        names=["mean"] if size == 1 and not task.labels else _names(task, "number", size),
        values=means.means,
        errors=means.standard_errors,
        shown=range(min(most, size)),
        more=more,
        truth=truth,
        notes=(note,),
    )
    spec = spec_as(task.mechanism, NumberSpec)
    return ResultView(
        tables=(table,),
        size=size,
        columns=columns_of(means, task.labels),
        fields={"low": spec.low, "high": spec.high},
        errors=errors,
        truth=truth,
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

    def table(title: str, values: Vector, errors: Vector, **others: Any) -> EstimateTable:  # noqa: ANN401  # its
        return EstimateTable(
            title=title + _part(size, len(reported[:most]), "most owned" if owners else "first"),
            name="key",
            names=_names(task, "key", size),
            values=values,
            errors=errors,
            shown=reported[:most].tolist(),
            more={"standard error": errors.tolist(), "reports": found.reports.tolist()},
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
    return ResultView(
        tables=tuple(tables),
        size=size,
        columns=columns_of(found, task.labels),
        fields={"low": spec.low, "high": spec.high, "population": task.population},
        errors=None if shares is None or means is None else _key_errors(found, shares, means),
        truth=shares,
    )


def _key_errors(found: KeyValues, true_shares: Vector, true_means: Vector) -> TruthErrors:
    if found.owners is None:
        mse = _mse(found.means_with_fakes, true_means)
        sentence = f"Mean squared error of means, fakes included, {mse:.3g}."
        return TruthErrors(sentence=sentence, fields={"mse_vs_truth": mse})
    shares = _mse(found.owners.frequencies, true_shares)
    means = _mse(found.owners.means, true_means)
    return TruthErrors(
        sentence=f"Mean squared error of shares {shares:.3g}, of means {means:.3g}.",
        fields={"mse_vs_truth": shares, "mse_of_means_vs_truth": means},
    )


def _texts(
    bits: BitTable,
    task: Task,
    most: int,
    candidates: Sequence[str],
    people: SamplePeople | None,
) -> ResultView:
    asked = candidates or (people.candidates if people else ()) or task.labels
    columns = columns_of(bits, ())
    if not asked:
        return ResultView(tables=(), size=0, columns=columns, warning=_NO_CANDIDATES)
    decoding = decode_candidates(task, bits, asked)
    truth, size = people.truth if people else None, len(asked)
    detected = (
        f"{int(decoding.detected.sum()):,} of {size:,} candidates were detected. "
        "The probability that any of these is held by no one is 5 % at most (Bonferroni)."
    )
    table = EstimateTable(
        title=f"The share of users who hold each of {size:,} candidates"
        + _largest_of(size, most, truth),
        name="text",
        value="share",
        names=decoding.candidates,
        values=decoding.shares,
        errors=decoding.share_errors,
        shown=_largest(decoding.shares if truth is None else truth, most),
        more={
            "p-value": [f"{chance:.2g}" for chance in decoding.p_values],
            "detected": decoding.detected.tolist(),
        },
        truth=truth,
        notes=(detected, _unexplained(decoding)),
    )
    return ResultView(
        tables=(table,),
        size=size,
        columns=candidate_columns(decoding) if candidates else columns,
        fields=decoding_as_json(decoding),
        errors=None if truth is None else _text_errors(decoding, truth),
        truth=truth,
    )


def _unexplained(decoding: Decoding) -> str:
    if decoding.exhaustive:
        return "Every text is one of the task's labels: shares differ from a sum of 1 by noise."
    percent = 100 / decoding.n_reports
    half_width = interval_reach(CONFIDENCE) * decoding.unexplained_error
    return (
        f"Unexplained: {percent * decoding.unexplained:.2f} ± {percent * half_width:.2f} % of the "
        "users hold a text that is not a candidate."
    )


def _text_errors(decoding: Decoding, truth: Vector) -> TruthErrors:
    detected = decoding.detected
    n_detected, n_false = int(detected.sum()), int((detected & (truth == 0)).sum())
    mse = _mse(decoding.shares, truth)
    return TruthErrors(
        sentence=f"Mean squared error of a share {mse:.3g}. {n_detected} candidates were detected, "
        f"{n_false} of them held by no one; {int((truth > 0).sum())} are held by someone.",
        fields={
            "mse_vs_truth": mse,
            "detected": n_detected,
            "false_discoveries": n_false,
            "shares": decoding.shares.tolist(),
        },
    )


def _names(task: Task, name: str, size: int) -> Sequence[str]:
    return task.labels or [f"{name} {place}" for place in range(size)]


def _part(size: int, n_shown: int, which: str) -> str:
    return f", the {n_shown:,} {which}" if n_shown < size else ""


def _largest_of(size: int, n_shown: int, truth: Vector | None) -> str:
    return _part(size, n_shown, "largest" if truth is None else "largest in truth")


def _largest(figures: Vector, most: int) -> list[int]:
    order: list[int] = np.argsort(-figures, kind="stable")[:most].tolist()
    return order


def _covered(interval: Interval, truth: Vector) -> str:
    low, high = interval
    covered = int(((low <= truth) & (truth <= high)).sum())
    return f"{covered:,} of {len(truth):,} intervals cover the truth."


def _mse(estimate: Vector, truth: Vector) -> float:
    return float(np.mean((estimate - truth) ** 2))
