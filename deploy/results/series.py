"""The results of a series' rounds, and their smoothing over time. Run by operators."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize_scalar

from common.errors import TaskError
from common.messages.guarantee import rounded_up
from common.messages.ledger_entry import LedgerEntry
from common.messages.result import (
    CONFIDENCE,
    Figures,
    Histogram,
    Interval,
    Means,
    Result,
    interval_around,
    interval_half_width,
)
from common.task.task import Task
from deploy.results.estimate_table import EstimateTable, print_table
from deploy.results.result_view import Columns, result_view
from deploy.results.verification import check_fits
from deploy.tasks import population_budgets
from deploy.tasks.population_budgets import PopulationBudgets
from deploy.tasks.schedule import SeriesRound
from deploy.terminal.durations import format_times
from deploy.terminal.tables import add_columns, print_whole

_LEAST_STEP: Final = 1e-6
"""Smallest variance of a step that is tried, in variances of the most precise estimate."""
_TINY: Final = 1e-30
"""Smallest variance of an observation, instead of 0."""
_COSTS: Final = ("n_users", "epsilon", "composed_epsilon")
_NOTE: Final = (
    "Smoothed: the share or mean among those who answered, as if it moved in random steps whose "
    "variance is estimated from the values shown. Its interval omits the error of that variance."
)


class SmoothedSeries(NamedTuple):
    """Smoothed levels with standard errors, each of shape (rounds, items)."""

    levels: Figures
    errors: Figures
    """Infinite for an item that was never observed. They omit the error of `variance`."""
    variance: float
    """Estimated variance of a step from one round to the next, of an item of scale 1."""


def smooth(values: Figures, errors: Figures, scales: Figures) -> SmoothedSeries:
    """
    Smooth each item's estimates over rounds: a Kalman filter, then the fixed-interval smoother.

    The model is the local level [DK12]: an item's level makes normal steps of variance q · scale,
    and an estimate is the level plus noise of its known variance. q is the maximum of the diffuse
    likelihood of all items together, so frequent items are not to be pooled with many rare ones.
    Pure. Cost: some 40 passes over the estimates.

    Args:
        values: Estimates, shape (rounds, items); 0 where there is none.
        errors: Their standard errors; infinite where there is no estimate.
        scales: Relative variances of the items' steps, above 0, shape (items,).
    """
    observed = np.isfinite(errors)
    if not observed.any():
        return SmoothedSeries(values, errors, 0.0)
    variances = np.maximum(errors**2, _TINY)
    precisions, noise = 1 / variances, (variances / scales)[observed]
    least, most = _LEAST_STEP * noise.min(), noise.max() + np.max(4 * values**2 / scales)
    best = minimize_scalar(
        lambda log: -_filter(values, precisions, math.exp(log) * scales)[2],
        bounds=(math.log(least), math.log(most)),
        method="bounded",
    )
    variance = math.exp(best.x)
    levels, known, _ = _filter(values, precisions, variance * scales)
    with np.errstate(divide="ignore"):
        variances = 1 / known
    for t in range(len(values) - 2, -1, -1):
        gain = 1 / (1 + variance * scales * known[t])
        levels[t] += gain * (levels[t + 1] - levels[t])
        variances[t] = gain**2 * variances[t + 1] + gain * variance * scales
    return SmoothedSeries(levels, np.sqrt(variances), variance)


def _filter(values: Figures, precisions: Figures, steps: Figures) -> tuple[Figures, Figures, float]:
    """Return the filtered levels, their precisions (0: unknown), and the log-likelihood."""
    level, known = np.zeros_like(steps), np.zeros_like(steps)
    levels, precision, likelihood = np.empty_like(values), np.empty_like(values), 0.0
    for t, (value, seen) in enumerate(zip(values, precisions, strict=True)):
        predicted = known / (1 + steps * known)
        known = predicted + seen
        gain = np.divide(seen, known, out=np.zeros_like(seen), where=known > 0)
        inverse = gain * predicted  # of the variance of the surprise; 0 at an item's first estimate
        surprise = np.where(seen > 0, value - level, 0.0)
        logs = np.log(inverse, out=np.zeros_like(inverse), where=inverse > 0)
        likelihood += float(np.sum(logs - inverse * surprise**2)) / 2
        level = level + gain * surprise
        levels[t], precision[t] = level, known
    return levels, precision, likelihood


@dataclass(frozen=True, kw_only=True, eq=False)
class SeriesResults:
    """The rounds of a series, with the released estimates and the ledger's entries by round."""

    rounds: Sequence[SeriesRound]
    estimates: Mapping[int, EstimateTable]
    """The tables of all values; empty for tasks that estimate neither shares nor means."""
    costs: Mapping[int, LedgerEntry]
    of_shares: bool
    """Whether estimates are shares of users, and not means."""
    top: int
    """Number of values to smooth and show: those with the largest means over rounds."""
    budgets: PopulationBudgets | None = None
    """The ledger's figures of the population, whatever tasks it was asked."""

    @classmethod
    def of(
        cls,
        rounds: Sequence[SeriesRound],
        top: int,
        released: Mapping[int, tuple[Task, Result, LedgerEntry]],
        budgets: PopulationBudgets | None = None,
    ) -> Self:
        """
        Check the released rounds' results against their tasks, and take their estimates.

        Raises TaskError if two rounds do not estimate the same values; WireError if a result does
        not fit its task.
        """
        estimates = {}
        for number, (task, result, _) in released.items():
            check_fits(result, task)
            if isinstance(result.estimate, Histogram | Means):
                estimates[number] = result_view(result.estimate, task, most=0).tables[0]
        names = [table.names for table in estimates.values()]
        if any(others != names[0] for others in names):
            raise TaskError("the rounds of a series must ask about the same values")
        return cls(
            rounds=rounds,
            estimates=estimates,
            costs={number: entry for number, (_, _, entry) in released.items()},
            of_shares=any(isinstance(each.estimate, Histogram) for _, each, _ in released.values()),
            top=top,
            budgets=budgets,
        )

    @cached_property
    def shown(self) -> dict[int, str]:
        """Indices and names, which are untrusted text, of the shown values, the largest first."""
        tables = list(self.estimates.values())
        total = np.sum([table.values for table in tables], axis=0) if tables else np.zeros(0)
        order = np.argsort(-total, kind="stable")[: self.top]
        return {int(index): tables[0].names[index] for index in order}

    @cached_property
    def smoothed(self) -> SmoothedSeries:
        """The smoothed levels of the shown values, in each round up to the last result."""
        shape = (max(self.estimates, default=0), len(self.shown))
        values, errors = np.zeros(shape), np.full(shape, np.inf)
        for number, table in self.estimates.items():
            values[number - 1] = table.values[[*self.shown]]
            errors[number - 1] = table.errors[[*self.shown]]
        scales = np.ones(shape[1])
        if self.of_shares:
            # Frequent values move more, as counts do; the noise bounds the scale of rare ones.
            noise = np.sum(errors, axis=0, where=np.isfinite(errors))
            scales = np.maximum(values.sum(axis=0), noise) + _TINY
        return smooth(values, errors, scales)

    @cached_property
    def ends(self) -> Interval:
        """Ends of the 95 % intervals of the smoothed levels, each of shape (rounds, shown)."""
        levels, errors, _ = self.smoothed
        return interval_around(levels, interval_half_width(CONFIDENCE) * errors)

    @cached_property
    def tables(self) -> tuple[EstimateTable, ...]:
        """A table for each shown value, with a row for each released round."""
        rounds, estimates = [number - 1 for number in self.estimates], self.estimates.values()
        tables, ends = [], "smoothed noise" if self.biased else "smoothed"
        for column, (index, name) in enumerate(self.shown.items()):
            values, errors, low, high = np.array(
                [[each[index] for each in (t.values, t.errors, *t.ends)] for t in estimates]
            ).T
            smoothed = (self.smoothed.levels, *self.ends)
            figures = (array[rounds, column].tolist() for array in smoothed)
            table = EstimateTable(
                title=name,
                name="round",
                names=[f"{number}" for number in self.estimates],
                value=next(iter(estimates)).value,
                biased=self.biased,
                values=values,
                errors=errors,
                shown=range(len(rounds)),
                more=dict(zip(("smoothed", f"{ends} low", f"{ends} high"), figures, strict=True)),
                given_ends=(low, high),
            )
            tables.append(table)
        return tuple(tables)

    def columns(self) -> Columns:
        """Return columns for a file, with a row for each shown value in each released round."""
        columns: dict[str, list[Any]] = {}
        for name, table in zip(self.shown.values(), self.tables, strict=True):
            own: Columns = {"label": [name] * len(table.names), "round": [*self.estimates]}
            own |= {"deadline": [self.rounds[number - 1].deadline for number in self.estimates]}
            for key, column in (own | table.columns() | dict(table.more)).items():
                columns.setdefault(key.replace(" ", "_"), []).extend(column)
        return dict(columns)

    def rows(self) -> list[dict[str, Any]]:
        """Return the fields of each round; without a result, its users and ε are None."""
        return [
            {
                **{name: getattr(each, name) for name in ("number", "deadline", "state")},
                "task_digest": each.task and each.task.task_digest.hex(),
                **{name: getattr(self.costs.get(each.number), name, None) for name in _COSTS},
            }
            for each in self.rounds
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON fields."""
        fields = {"rounds": self.rows(), "values": self.columns()}
        budgets = self.budgets and population_budgets.as_json(self.budgets)
        return {**fields, "population_budgets": budgets}

    def show(self, console: Console) -> None:
        """Print a row for each round, a table for each shown value, and the budgets."""
        table = Table(
            caption="Epsilon against the analyzer: of the round, and of all the population's "
            "releases up to it."
        )
        add_columns(table, {"round": "right", "deadline": "left", "state": "left"})
        add_columns(table, {"users": "right", "epsilon": "right", "all so far": "right"})
        times = format_times([each.deadline for each in self.rounds])
        for time, each in zip(times, self.rounds, strict=True):
            figures, cost = ["–"] * 3, self.costs.get(each.number)
            if cost is not None:
                spent = (rounded_up(cost.epsilon), rounded_up(cost.composed_epsilon))
                figures = [f"{cost.n_users:,}", *spent]
            table.add_row(f"{each.number:,}", time, each.state, *figures)
        print_whole(table, console)
        for value in self.tables:
            print_table(value, console)
        console.print(self.note)
        if self.budgets:
            population_budgets.show([self.budgets], console)

    @property
    def note(self) -> str:
        """What smoothing assumes, or why there is none."""
        bias = " ".join(next(iter(self.estimates.values())).notes) + " " if self.biased else ""
        return bias + _NOTE if self.tables else "No round has released shares or means to smooth."

    @property
    def biased(self) -> bool:
        """Whether estimates are biased, so that their intervals are of noise alone."""
        return any(table.biased for table in self.estimates.values())
