"""A result as its readers see it: tables, columns and fields, the same for every kind of value."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from common.errors import SettingsError
from common.mechanisms.base import Vector
from common.messages.estimate import (
    BitTable,
    Estimate,
    Histogram,
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
from deploy.results.estimate_table import INTERVAL, NOISE_ALONE, EstimateTable, estimate_table
from deploy.results.rappor.decoder import Decoding
from deploy.results.truth_comparison import TruthErrors, errors_against

MOST_ROWS: Final = 2000
"""Most rows of a page's table."""
_SHRUNK_FROM: Final = 3
"""Fewer numbers have nothing to be shrunk by; see analyzer/estimation/shrinkage.py."""
_TOO_FEW: Final = "Too few users for this much noise: nothing can be concluded about single values."
_NO_CANDIDATES: Final = (
    "These counts can be searched for texts: give a file of candidates with --candidates, one a "
    "line."
)
_OWN_INTERVAL: Final = "Each interval covers its true {} with 95 % probability, by itself"


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
    """Against the truth, in a demo only."""
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
        candidates: Texts to look for, in a task that collects texts; its labels are candidates
            too.
        people: Those who contributed, in a demo: the truth stands beside each estimate.

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
        view = _histogram(estimate, task, most, people)
    elif isinstance(estimate, Means):
        view = _means(estimate, task, most, people)
    else:
        view = _key_values(estimate, task, most, people)
    return view if people is None else _with_truth(view, people, errors_against(people, estimate))


def _with_truth(view: ResultView, people: SamplePeople, errors: TruthErrors) -> ResultView:
    return dataclasses.replace(view, errors=errors, truth=people.truth)


def _histogram(
    histogram: Histogram, task: Task, most: int, people: SamplePeople | None
) -> ResultView:
    shares, truth = histogram.frequencies, people.truth if people else None
    table = estimate_table(
        labels_of(task.labels, len(shares)),
        shares,
        histogram.standard_errors,
        _largest(shares if truth is None else truth, most),
        title=f"The share of users with each of {len(shares):,} values",
        which="largest" if truth is None else "largest in truth",
        name="value",
        value="share",
        more={"refined": histogram.refined.tolist()},
        truth=truth,
        notes=[
            (
                f"{_OWN_INTERVAL.format('share')}: of many values, some are missed. Refined shares "
                "are no less than 0 and sum to 1."
            )
        ],
    )
    return ResultView(
        tables=(table,),
        size=len(shares),
        columns=columns_of(histogram, task.labels),
        warning="" if histogram.tells_values_apart(CONFIDENCE) else _TOO_FEW,
    )


def _means(means: Means, task: Task, most: int, people: SamplePeople | None) -> ResultView:
    size = len(means.means)
    more = {"standard error": means.standard_errors.tolist()}
    note = f"{_OWN_INTERVAL.format('mean')}."
    if size >= _SHRUNK_FROM:
        more["shrunk"] = means.shrunk.tolist()
        note += (
            " The shrunk mean is drawn to the middle of the range as far as the noise says: closer "
            "to the truth where there are many numbers and few people, but biased."
        )
    if not means.unbiased:
        note = (
            "Means are biased: vectors were projected, and the error of the projection is in no "
            "interval, which is of noise alone."
        )
    table = estimate_table(
        ["mean"] if size == 1 and not task.labels else _names(task, "number", size),
        means.means,
        means.standard_errors,
        range(min(most, size)),
        title=f"The mean of {'a number' if size == 1 else f'each of {size:,} numbers'}",
        which="first",
        name="number",
        value="mean",
        interval=INTERVAL if means.unbiased else NOISE_ALONE,
        more=more,
        truth=people.truth if people else None,
        notes=[note],
    )
    spec = spec_as(task.mechanism, NumberSpec)
    return ResultView(
        tables=(table,),
        size=size,
        columns=columns_of(means, task.labels),
        fields={"low": spec.low, "high": spec.high},
    )


def _key_values(found: KeyValues, task: Task, most: int, people: SamplePeople | None) -> ResultView:
    spec, size = spec_as(task.mechanism, KeyValueSpec), len(found.means_with_fakes)
    shares, means = (people.truth, people.true_means) if people else (None, None)
    fake = "the task's own for each key" if spec.fakes else "the middle of the range"
    reported, owners = np.flatnonzero(found.reports), found.owners
    unreported = size - len(reported)
    unknown = [f"Nobody reported on {unreported:,} of the keys: nothing is known of them."]
    unknown *= unreported > 0
    if owners is not None:
        reported = reported[np.argsort(-owners.frequencies[reported], kind="stable")]

    def table(values: Vector, errors: Vector, **others: Any) -> EstimateTable:  # noqa: ANN401  # its
        return estimate_table(
            _names(task, "key", size),
            values,
            errors,
            reported[:most].tolist(),
            which="first" if owners is None else "most owned",
            name="key",
            more={"standard error": errors.tolist(), "reports": found.reports.tolist()},
            **others,
        )

    if owners is None:
        tables = [
            table(
                found.means_with_fakes,
                found.errors_with_fakes,
                title=f"The mean of the reports on each of {size:,} keys, fakes included",
                value="mean with fakes",
                interval=NOISE_ALONE,
                truth=means,
                notes=[
                    (
                        "This task does not ask who owns a key. Users without the key answer with "
                        f"a fake value, {fake}; how far fakes pull a mean is in no interval."
                    ),
                    *unknown,
                ],
            )
        ]
    else:
        tables = [
            table(
                owners.frequencies,
                owners.frequency_errors,
                title=f"The share of users who own each of {size:,} keys",
                value="share",
                truth=shares,
                notes=[f"{_OWN_INTERVAL.format('share')}.", *unknown],
            ),
            table(
                owners.means,
                owners.mean_errors,
                title="The mean of the values of those who own it",
                value="mean",
                truth=means,
                notes=[
                    (
                        f"A key that is not owned is sometimes reported with a fake value, {fake}, "
                        "which pulls means towards it. The estimate corrects for it by the "
                        "shares; a key that few own leaves it little to go by."
                    )
                ],
            ),
        ]
    return ResultView(
        tables=tuple(tables),
        size=size,
        columns=columns_of(found, task.labels),
        fields={"low": spec.low, "high": spec.high, "population": task.population},
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
    truth, n_asked = people.truth if people else None, len(asked)
    table = estimate_table(
        decoding.candidates,
        decoding.shares,
        decoding.standard_errors / decoding.n_reports,
        _largest(decoding.shares if truth is None else truth, most),
        title=f"The share of users who hold each of {n_asked:,} candidates",
        which="largest" if truth is None else "largest in truth",
        name="text",
        value="share",
        more={
            "p-value": [f"{chance:.2g}" for chance in decoding.p_values],
            "detected": decoding.detected.tolist(),
        },
        truth=truth,
        notes=(
            (
                f"{int(decoding.detected.sum()):,} of {n_asked:,} candidates were detected. "
                "The probability that any of these is held by no one is 5 % at most (Bonferroni)."
            ),
            _unexplained(decoding),
        ),
    )
    view = ResultView(
        tables=(table,),
        size=n_asked,
        columns=candidate_columns(decoding) if candidates else columns,
        fields=decoding_as_json(decoding),
    )
    return view if people is None else _with_truth(view, people, errors_against(people, decoding))


def _unexplained(decoding: Decoding) -> str:
    if decoding.exhaustive:
        return "Every text is one of the task's labels: shares differ from a sum of 1 by noise."
    percent = 100 * decoding.unexplained / decoding.n_reports
    half_width = 100 * interval_reach(CONFIDENCE) * decoding.unexplained_error
    half_width /= decoding.n_reports
    return (
        f"Unexplained: an estimated {percent:.2f} % (95 % interval {percent - half_width:.2f} % … "
        f"{percent + half_width:.2f} %) of the users hold a text that is not a candidate."
    )


def _names(task: Task, name: str, size: int) -> Sequence[str]:
    return task.labels or [f"{name} {place}" for place in range(size)]


def _largest(figures: Vector, most: int) -> list[int]:
    order: list[int] = np.argsort(-figures, kind="stable")[:most].tolist()
    return order
