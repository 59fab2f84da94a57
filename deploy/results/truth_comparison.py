"""Errors of estimates against the truth, which only a demo or a simulation knows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.mechanisms.base import Vector
from common.messages.estimate import Histogram, Interval, KeyValues, Means
from deploy.datasets.sample_people import SamplePeople
from deploy.results.estimate_columns import CONFIDENCE
from deploy.results.rappor.decoder import Decoding


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthErrors:
    """How far estimates are off."""

    sentence: str
    fields: Mapping[str, Any]
    """For programs; `mse_vs_truth` is among them."""


def errors_against(
    people: SamplePeople, estimate: Histogram | Means | KeyValues | Decoding
) -> TruthErrors:
    """
    Compare an estimate, or decoded candidates, with the truth.

    Args:
        people: The people who contributed, and no others.
        estimate: What was released of them.
    """
    if isinstance(estimate, Histogram):
        return _histogram_errors(estimate, people.truth)
    if isinstance(estimate, Means):
        return _mean_errors(estimate, people.truth)
    if isinstance(estimate, Decoding):
        return _text_errors(estimate, people.truth)
    return _key_errors(estimate, people)


def _histogram_errors(histogram: Histogram, truth: Vector) -> TruthErrors:
    mse = _mse(histogram.frequencies, truth)
    return TruthErrors(
        sentence=f"Mean squared error {mse:.3g}, in theory {histogram.mse_theory:.3g}; refined "
        f"{_mse(histogram.refined, truth):.3g}. {_covered(histogram.interval(CONFIDENCE), truth)}",
        fields={"mse_vs_truth": mse},
    )


def _mean_errors(means: Means, truth: Vector) -> TruthErrors:
    mse, shrunk = _mse(means.means, truth), _mse(means.shrunk, truth)
    sentence = (
        f"Mean squared error {mse:.3g}, in theory {means.mse_theory:.3g}; shrunk {shrunk:.3g}. "
        f"{_covered(means.interval(CONFIDENCE), truth)}"
    )
    if not means.unbiased:
        sentence = (
            f"Mean squared error {mse:.3g}, of which noise {means.mse_theory:.3g} in theory; "
            f"shrunk {shrunk:.3g}."
        )
    return TruthErrors(
        sentence=sentence, fields={"mse_vs_truth": mse, "mse_shrunk_vs_truth": shrunk}
    )


def _key_errors(found: KeyValues, people: SamplePeople) -> TruthErrors:
    true_means = people.true_means if people.true_means is not None else np.zeros(0)
    if found.owners is None:
        mse = _mse(found.means_with_fakes, true_means)
        return TruthErrors(
            sentence=f"Mean squared error of means, fakes included, {mse:.3g}.",
            fields={"mse_vs_truth": mse},
        )
    shares = _mse(found.owners.frequencies, people.truth)
    means = _mse(found.owners.means, true_means)
    return TruthErrors(
        sentence=f"Mean squared error of shares {shares:.3g}, of means {means:.3g}.",
        fields={"mse_vs_truth": shares, "mse_of_means_vs_truth": means},
    )


def _text_errors(decoding: Decoding, truth: Vector) -> TruthErrors:
    detected = decoding.detected
    n_detected, n_false = int(detected.sum()), int((detected & (truth == 0)).sum())
    mse = _mse(decoding.shares, truth)
    missed = math.ceil(1000 * truth[~detected].max(initial=0.0)) / 10
    return TruthErrors(
        sentence=f"Mean squared error of a share {mse:.3g}. {n_detected} candidates were detected, "
        f"{n_false} of them held by no one; {int((truth > 0).sum())} are held by someone. Every "
        f"text that more than {missed:.1f} % hold was detected.",
        fields={
            "mse_vs_truth": mse,
            "detected": n_detected,
            "false_discoveries": n_false,
            "shares": decoding.shares.tolist(),
        },
    )


def _covered(interval: Interval, truth: Vector) -> str:
    low, high = interval
    covered = int(((low <= truth) & (truth <= high)).sum())
    return f"{covered:,} of {len(truth):,} intervals cover the truth."


def _mse(estimate: Vector, truth: Vector) -> float:
    return float(np.mean((estimate - truth) ** 2))
