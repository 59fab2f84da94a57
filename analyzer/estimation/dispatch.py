"""Estimate a batch's result from its cell counts, for every kind of value. Run by the analyzer."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final, cast

import numpy as np

from analyzer.estimation.histogram import estimate
from analyzer.estimation.shrinkage import shrink_to_zero
from common.mechanisms.base import Counts, Mechanism, Mixture, Randomizer
from common.mechanisms.key_value.privkv import PrivKv
from common.mechanisms.numeric.number import NumberMechanism
from common.messages.result import BitTable, Estimate, KeyValues, Means, Owners
from common.protocols import Kind
from common.task.specs import KeyValueSpec, NumberSpec, RapporSpec, spec_as
from common.task.task import Task


def estimate_result(
    task: Task, randomizer: Randomizer, cells: Counts, mixture: Mixture
) -> Estimate:
    """
    Estimate the result of a task. Pure.

    Args:
        task: The batch's task.
        randomizer: Its mechanism.
        cells: Counts from the mechanism's `tally`, shape (cells,).
        mixture: Composition of the counted reports; used for items only, since other kinds have no
            dummies.
    """
    if task.kind == "categorical":
        mechanism = cast("Mechanism", randomizer)
        return estimate(mechanism, cells, mixture=mixture, refinement=task.refinement)
    return _WITHOUT_DUMMIES[task.kind](task, randomizer, cells)


def _bit_table(task: Task, _randomizer: Randomizer, cells: Counts) -> BitTable:
    spec = spec_as(task.mechanism, RapporSpec)
    sizes, counts = cells[: spec.cohorts], cells[spec.cohorts :]
    return BitTable(cohort_sizes=sizes, bit_counts=counts.reshape(spec.cohorts, spec.bits))


def _means(task: Task, randomizer: Randomizer, cells: Counts) -> Means:
    """
    Return means and errors in the task's units.

    A number with too few reports gets the middle of its range, and half the range as its error: no
    distribution on the range has a larger standard deviation.
    """
    spec, mechanism = spec_as(task.mechanism, NumberSpec), cast("NumberMechanism", randomizer)
    half, middle = (spec.high - spec.low) / 2, (spec.high + spec.low) / 2
    moments = mechanism.estimate(cells)
    told = np.isfinite(moments.variances)
    variances = np.where(told, moments.variances, 1.0)
    means = np.where(told, moments.means, 0.0)
    filled = dataclasses.replace(moments, means=means, variances=variances)
    return Means(
        means=middle + half * means,
        standard_errors=half * np.sqrt(variances),
        shrunk=middle + half * np.clip(shrink_to_zero(filled), -1, 1),
        mse_theory=float(half**2 * variances.mean()),
        unbiased=moments.unbiased,
    )


def _key_values(task: Task, randomizer: Randomizer, cells: Counts) -> KeyValues:
    spec, priv_kv = spec_as(task.mechanism, KeyValueSpec), cast("PrivKv", randomizer)
    half, middle = (spec.high - spec.low) / 2, (spec.high + spec.low) / 2
    found = priv_kv.estimate(cells)
    owners: Owners | None = None
    if priv_kv.key_signal:
        of_owners = priv_kv.without_fakes(found)
        owners = Owners(
            frequencies=found.frequencies,
            frequency_errors=found.frequency_errors,
            means=middle + half * of_owners.means,
            mean_errors=half * of_owners.mean_errors,
        )
    return KeyValues(
        means_with_fakes=middle + half * found.means_with_fakes,
        errors_with_fakes=half * found.errors_with_fakes,
        reports=cells.sum(axis=1),
        owners=owners,
    )


_WITHOUT_DUMMIES: Final[Mapping[Kind, Callable[[Task, Randomizer, Counts], Estimate]]] = {
    "string": _bit_table,
    "mean": _means,
    "vector": _means,
    "key-value": _key_values,
}
