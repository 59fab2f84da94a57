"""The results of a series' rounds, and their smoothing over time. Run by operators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import numpy as np
from rich.console import Console
from rich.table import Table

from shuffledp.analyzer.finalize import mixture_of_result
from shuffledp.common.errors import TaskError
from shuffledp.common.messages import result
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.messages.ledger_entry import LedgerEntry
from shuffledp.common.task.task import Task
from shuffledp.deploy.results import local_level, result_view, verification
from shuffledp.deploy.results.estimate_table import Columns, EstimateTable, print_table
from shuffledp.deploy.tasks import population_budgets
from shuffledp.deploy.tasks.schedule import People, SeriesRound
from shuffledp.deploy.terminal.durations import format_times
from shuffledp.deploy.terminal.tables import add_columns, print_whole

_COSTS: Final = ("n_users", "epsilon", "composed_epsilon")


class _Line(NamedTuple):
    """Whose share or mean a line shows, and what values vary by around it, besides noise."""

    whose: str
    note: str
    of_shares: tuple[float, ...]
    """`parts` of Observations."""
    of_means: tuple[float, ...]


_LINES: Final[Mapping[People, _Line]] = {
    "other": _Line(
        "population",
        "Shown is the population, of which other people answer every round: intervals, those of "
        "single rounds too, include noise and who answered.",
        of_shares=(1.0,),
        # Results state no variance between users; how the means of many rounds scatter tells it.
        of_means=tuple(2.0**-halved for halved in range(7)),
    ),
    "same": _Line(
        "respondents",
        "Shown are the respondents, the same people in every round: intervals include noise alone.",
        of_shares=(0.0,),
        of_means=(0.0,),
    ),
}
_SMOOTHED: Final = (
    "Smoothed: as if each value moved in random steps, of a size that all rounds and values shown "
    "tell. A shift is a change too large for such a step: smoothing starts again there. No budget "
    "or guarantee relies on smoothing. "
)


@dataclass(frozen=True, kw_only=True, eq=False)
class SeriesResults:
    """The rounds of a series, with the released estimates and the ledger's entries by round."""

    rounds: Sequence[SeriesRound]
    estimates: Mapping[int, EstimateTable]
    """The tables of all values; empty for tasks that estimate neither shares nor means."""
    counted: Mapping[int, int]
    """Users whose reports are in each estimate: those who arrived but were not refused."""
    costs: Mapping[int, LedgerEntry]
    bounds: tuple[float, float] = (0.0, 1.0)
    """Ends of the range of one user's number; 0 and 1 for shares."""
    people: People = "other"
    top: int
    """Number of values to smooth and show: those with the largest means over rounds."""
    budgets: population_budgets.PopulationBudgets | None = None
    """The ledger's figures of the population, whatever tasks it was asked."""

    @classmethod
    def of(
        cls,
        rounds: Sequence[SeriesRound],
        top: int,
        released: Mapping[int, tuple[Task, result.Result, LedgerEntry]],
        budgets: population_budgets.PopulationBudgets | None = None,
        people: People = "other",
    ) -> Self:
        """
        Check the released rounds' results against their tasks, and take their estimates.

        Raises TaskError if two rounds do not estimate the same values; WireError if a result does
        not fit its task.
        """
        estimates, counted, ends = {}, {}, (0.0, 1.0)
        for number, (task, found, _) in released.items():
            verification.check_fits(found, task)
            if isinstance(found.estimate, result.Histogram | result.Means):
                view = result_view.result_view(found.estimate, task, most=0)
                estimates[number] = view.tables[0]
                counted[number] = round(mixture_of_result(task, found).n_real)
                ends = (view.fields.get("low", 0.0), view.fields.get("high", 1.0))
        names = [table.names for table in estimates.values()]
        if any(others != names[0] for others in names):
            raise TaskError("the rounds of a series must ask about the same values")
        return cls(
            rounds=rounds,
            estimates=estimates,
            counted=counted,
            costs={number: entry for number, (_, _, entry) in released.items()},
            bounds=ends,
            people=people,
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

    @property
    def whose(self) -> str:
        """Whose shares or means are shown: the population's or the respondents'."""
        return _LINES[self.people].whose

    @cached_property
    def smoothed(self) -> local_level.Smoothed:
        """The smoothed levels of the shown values, in each round up to the last result."""
        shape = (max(self.estimates, default=0), len(self.shown))
        n_users, (values, noise) = np.zeros(shape[0], dtype=np.int64), np.zeros((2, *shape))
        for number, table in self.estimates.items():
            values[number - 1] = table.values[[*self.shown]]
            noise[number - 1] = table.errors[[*self.shown]] ** 2
            n_users[number - 1] = self.counted[number]
        line, (low, high) = _LINES[self.people], self.bounds
        shares = any(table.value == "share" for table in self.estimates.values())
        parts = line.of_shares if shares else line.of_means
        observed = local_level.Observations(
            values=values, noise=noise, n_users=n_users, low=low, high=high, parts=parts
        )
        return local_level.smooth(observed)

    @cached_property
    def ends(self) -> result.Interval:
        """Ends of the 95 % intervals of the smoothed levels, each of shape (rounds, shown)."""
        reach = result.interval_half_width(result.CONFIDENCE) * self.smoothed.errors
        return result.interval_around(self.smoothed.levels, reach)

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
            more = dict(zip(("smoothed", f"{ends} low", f"{ends} high"), figures, strict=True))
            shifts = ["shift" * begins for begins in self.smoothed.shifts[rounds, column].tolist()]
            # What a round's own interval of those who answered leaves out.
            sampling = np.sqrt(self.smoothed.sampling[rounds, column])
            reach = result.interval_half_width(result.CONFIDENCE) * sampling
            value = next(iter(estimates)).value
            table = EstimateTable(
                title=f"{name}: {value} of the {self.whose}",
                name="round",
                names=[f"{number}" for number in self.estimates],
                value=value,
                biased=self.biased,
                values=values,
                errors=np.hypot(errors, sampling),
                shown=range(len(rounds)),
                more={**more, "shift": shifts},
                given_ends=(
                    values - np.hypot(values - low, reach),
                    values + np.hypot(high - values, reach),
                ),
            )
            tables.append(table)
        return tuple(tables)

    def columns(self) -> Columns:
        """Return columns for a file, with a row for each shown value in each released round."""
        columns: dict[str, list[Any]] = {}
        for name, table in zip(self.shown.values(), self.tables, strict=True):
            own: Columns = {"label": [name] * len(table.names), "round": [*self.estimates]}
            own |= {"deadline": [self.rounds[number - 1].deadline for number in self.estimates]}
            own |= table.columns() | {**table.more, "whose": [self.whose] * len(table.names)}
            for key, column in own.items():
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
        if not self.tables:
            return "No round has released shares or means to smooth."
        bias = " ".join(next(iter(self.estimates.values())).notes) + " " if self.biased else ""
        return bias + _SMOOTHED + _LINES[self.people].note

    @property
    def biased(self) -> bool:
        """Whether estimates are biased, so that their intervals are of noise alone."""
        return any(table.biased for table in self.estimates.values())
