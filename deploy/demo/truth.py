"""Estimates beside the truth, which only a demo knows, and sentences about their errors."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.messages import result
from shuffledp.common.task.task import Task
from shuffledp.deploy.datasets.sample_people import SamplePeople
from shuffledp.deploy.results.distribution_view import DEFAULT_QUANTILES
from shuffledp.deploy.results.estimate_table import EstimateTable, ResultView, largest, mse_of


class _Known(NamedTuple):
    """What a demo knows."""

    task: Task
    people: SamplePeople


_Compared = tuple[tuple[EstimateTable, ...], str, dict[str, Any]]
"""Tables with the truth, a sentence on the errors of estimates, and JSON fields with them."""


def beside_truth(
    view: ResultView, estimate: result.Estimate, task: Task, people: SamplePeople
) -> ResultView:
    """Return a view whose tables have the people's true figures, with the errors of estimates."""
    tables, errors, fields = _KNOWN[type(estimate)](view, estimate, _Known(task, people))
    last = replace(tables[-1], notes=(*tables[-1].notes, *filter(None, (errors,))))
    return replace(view, tables=(*tables[:-1], last), fields={**view.fields, **fields})


def _found_values(view: ResultView, estimate: result.FoundValues, known: _Known) -> _Compared:
    [table], people = view.tables, known.people
    shares = dict(zip(people.candidates, people.truth.tolist(), strict=True))
    truth = np.array([shares.get(name, 0.0) for name in table.names])
    sure = {name for name, share in shares.items() if share >= estimate.sure_share}
    n_sure, n_false = len(sure & set(table.names)), int((truth == 0).sum())
    errors = f"Frequent values found: {n_sure:,} of {len(sure):,}. " * bool(sure)
    if table.names:
        errors += f"Values found that nobody holds: {n_false:,}. {_covered(table.ends, truth)}"
    fields = {"sure": len(sure), "sure_found": n_sure, "false_discoveries": n_false}
    return (replace(table, truth=truth),), errors, fields


def _histogram(view: ResultView, estimate: result.Histogram, known: _Known) -> _Compared:
    truth, edges, (first, *tables) = known.people.truth, known.task.edges, view.tables
    first = _ranked(first, truth)
    if edges is not None:
        first = replace(first, shown=sorted(first.shown))
        numbers = np.interp(DEFAULT_QUANTILES, np.append(0.0, np.cumsum(truth)), edges.edges)
        tables = [replace(quantiles, truth=numbers) for quantiles in tables]
    mse = mse_of(estimate.frequencies, truth)
    errors = (
        f"Mean squared error {mse:.3g}, in theory {estimate.mse_theory:.3g}; refined "
        f"{mse_of(estimate.refined, truth):.3g}. {_covered(first.ends, truth)}"
    )
    fields = {"mse_vs_truth": mse}
    return (first, *tables), errors, fields


def _means(view: ResultView, estimate: result.Means, known: _Known) -> _Compared:
    truth, [table] = known.people.truth, view.tables
    mse, mse_shrunk = mse_of(estimate.means, truth), mse_of(estimate.shrunk, truth)
    better = f"; shrunk {mse_shrunk:.3g}" if "shrunk" in table.more else ""
    theory, covered = f"of which noise {estimate.mse_theory:.3g} in theory", ""
    if estimate.unbiased:
        theory, covered = f"in theory {estimate.mse_theory:.3g}", f" {_covered(table.ends, truth)}"
    errors = f"Mean squared error {mse:.3g}, {theory}{better}.{covered}"
    fields = {"mse_vs_truth": mse, "mse_shrunk_vs_truth": mse_shrunk}
    return (replace(table, truth=truth),), errors, fields


def _key_values(view: ResultView, estimate: result.KeyValues, known: _Known) -> _Compared:
    truths = [known.people.truth, known.people.true_means]
    errors = "Mean squared error of shares {:.3g}, of means {:.3g}."
    if estimate.owners is None:
        truths, errors = truths[1:], "Mean squared error of means, fakes included, {:.3g}."
    pairs = zip(view.tables, truths, strict=True)
    tables = tuple(replace(table, truth=truth) for table, truth in pairs)
    found = [mse_of(each.values, each.truth) for each in tables if each.truth is not None]
    fields = dict(zip(("mse_vs_truth", "mse_of_means_vs_truth"), found, strict=False))
    return tables, errors.format(*found), fields


def _texts(view: ResultView, _: result.BitTable, known: _Known) -> _Compared:
    truth, detected = known.people.truth, np.array(view.fields["detected"])
    table, n_detected = _ranked(view.tables[0], truth), int(detected.sum())
    mse, n_held = mse_of(table.values, truth), int((truth > 0).sum())
    n_false = int((detected & (truth == 0)).sum())
    errors = (
        f"Mean squared error of a share {mse:.3g}. {_discoveries(n_detected, n_false)}; "
        f"{n_held:,} {'candidate occurs' if n_held == 1 else 'candidates occur'}."
    )
    fields = {"mse_vs_truth": mse, "detected": n_detected, "false_discoveries": n_false}
    return (table,), errors, fields


def _share_tables(view: ResultView, estimate: result.ShareTables, known: _Known) -> _Compared:
    mechanism, truth = Tables.of(known.task), known.people.truth
    n_users = len(known.people.values)
    counts = np.rint(truth * n_users).astype(np.int64)
    exact = mechanism.estimate(counts, n_users)  # least squares keep true counts, and add margins
    pairs = [each for names, each in zip(mechanism.tables, exact.tables, strict=True) if names[1:]]
    true = [each.shares for each in (*exact.attributes, *pairs)]
    tests, tables = view.tables[: -len(true)], view.tables[-len(true) :]
    tables = tuple(replace(each, truth=own) for each, own in zip(tables, true, strict=True))
    mse = mse_of(np.concatenate([each.shares for each in estimate.tables]), truth)
    errors = (
        f"Mean squared error of a cell {mse:.3g}, in theory {estimate.mse_theory:.3g}. "
        f"{_covered(np.concatenate([each.ends for each in tables], axis=1), np.concatenate(true))}"
    )
    return (*tests, *tables), errors, {"mse_vs_truth": mse}


_KNOWN: Final[Mapping[type, Callable[[ResultView, Any, _Known], _Compared]]] = {
    result.BitTable: _texts,
    result.FoundValues: _found_values,
    result.Histogram: _histogram,
    result.KeyValues: _key_values,
    result.Means: _means,
    result.ShareTables: _share_tables,
}


def _ranked(table: EstimateTable, truth: Vector) -> EstimateTable:
    """Return a table with the truth, which shows the values that are largest in truth."""
    shown = largest(truth, len(table.shown))
    return replace(table, truth=truth, shown=shown, selection="{:,} largest in truth")


def _covered(ends: Iterable[Vector], truth: Vector) -> str:
    """Return a sentence with the number of intervals that cover the truth."""
    low, high = ends
    covered = int(((low <= truth) & (truth <= high)).sum())
    if len(truth) == 1:
        return f"The interval {'covers' if covered else 'does not cover'} the truth."
    return f"{covered:,} of {len(truth):,} intervals cover the truth."


def _discoveries(n_detected: int, n_false: int) -> str:
    """Return a clause with the numbers of detected candidates and of false discoveries."""
    if n_detected <= 1:
        checked = f", {'wrongly' if n_false else 'correctly'}" if n_detected else ""
        return f"{'1' if n_detected else 'No'} candidate was detected{checked}"
    checked = f"{n_false:,} of them wrongly" if n_false else "all correctly"
    return f"{n_detected:,} candidates were detected, {checked}"
