"""Estimates beside the truth, which only a demonstration or a simulation knows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from common.mechanisms.base import Vector
from common.messages.estimate import BitTable, Estimate, Histogram, KeyValues, Means
from common.task.specs import KeyValueSpec, spec_as
from common.task.task import Task
from deploy.datasets.sample_people import SamplePeople
from deploy.results.decoded_texts import decode_candidates, of_decoded
from deploy.results.estimate_columns import CONFIDENCE
from deploy.results.estimate_table import EstimateTable, of_key_values, of_means

MOST_LINES: Final = 100
"""Of a table: more than any demo has, so that it shows whatever it announces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is shown of estimates whose truth is known."""

    tables: tuple[EstimateTable, ...]
    """None for items, whose histogram has a look of its own."""
    sentences: tuple[str, ...]
    fields: Mapping[str, Any]
    """For programs: the mean squared error among them."""
    size: int
    """How many things were estimated."""


def compare(task: Task, estimate: Estimate, people: SamplePeople) -> Comparison:
    """Compare what was released with what is true of the very people who took part."""
    if isinstance(estimate, Histogram):
        return Comparison(
            tables=(),
            sentences=(),
            fields={"mse_vs_truth": _mse(estimate.frequencies, people.truth)},
            size=len(people.truth),
        )
    if isinstance(estimate, Means):
        return _of_means(task, estimate, people)
    if isinstance(estimate, KeyValues):
        return _of_key_values(task, estimate, people)
    return _of_texts(task, estimate, people)


def _of_means(task: Task, means: Means, people: SamplePeople) -> Comparison:
    mse, shrunk = _mse(means.means, people.truth), _mse(means.shrunk, people.truth)
    low, high = means.interval(CONFIDENCE)
    covered = int(((low <= people.truth) & (people.truth <= high)).sum())
    sentence = (
        f"Mean squared error {mse:.3g}, in theory {means.mse_theory:.3g}; shrunk {shrunk:.3g}. "
        f"{covered} of {len(people.truth)} intervals hold the truth."
    )
    if not means.unbiased:
        sentence = (
            f"Mean squared error {mse:.3g}, of which noise {means.mse_theory:.3g} in theory; "
            f"shrunk {shrunk:.3g}."
        )
    return Comparison(
        tables=(of_means(means, task.labels, most=MOST_LINES, truth=people.truth),),
        sentences=(sentence,),
        fields={"mse_vs_truth": mse, "mse_shrunk_vs_truth": shrunk},
        size=len(people.truth),
    )


def _of_key_values(task: Task, found: KeyValues, people: SamplePeople) -> Comparison:
    true_means = people.true_means if people.true_means is not None else np.zeros(0)
    spec = spec_as(task.mechanism, KeyValueSpec)
    truth = (people.truth, true_means)
    tables = of_key_values(found, spec, task.labels, most=MOST_LINES, truth=truth)
    if found.owners is None:
        means = _mse(found.means_with_fakes, true_means)
        return Comparison(
            tables=tables,
            sentences=(f"Mean squared error of means, fakes included, {means:.3g}.",),
            fields={"mse_vs_truth": means},
            size=len(true_means),
        )
    shares, means = (
        _mse(found.owners.frequencies, people.truth),
        _mse(found.owners.means, true_means),
    )
    return Comparison(
        tables=tables,
        sentences=(f"Mean squared error of shares {shares:.3g}, of means {means:.3g}.",),
        fields={"mse_vs_truth": shares, "mse_of_means_vs_truth": means},
        size=len(people.truth),
    )


def _of_texts(task: Task, table: BitTable, people: SamplePeople) -> Comparison:
    decoded = decode_candidates(task, table, people.candidates)
    shown = of_decoded(decoded, most=MOST_LINES, truth=people.truth)
    shares = decoded.shares
    mse = _mse(shares, people.truth)
    false = int((decoded.detected & (people.truth == 0)).sum())
    sentence = (
        f"Mean squared error of a share {mse:.3g}. Of {len(people.truth)} candidates "
        f"{int(decoded.detected.sum())} were detected, {false} of them in nobody's hands."
    )
    return Comparison(
        tables=(shown,),
        sentences=(sentence,),
        fields={
            "mse_vs_truth": mse,
            "detected": int(decoded.detected.sum()),
            "false_discoveries": false,
            "shares": shares.tolist(),
        },
        size=len(people.truth),
    )


def _mse(estimate: Vector, truth: Vector) -> float:
    return float(np.mean((estimate - truth) ** 2))
