"""Estimates of other kinds than items as tables: one look for the terminal and for the page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from common.mechanisms.base import Vector
from common.messages.estimate import KeyValues, Means
from common.task.specs import KeyValueSpec
from deploy.results.estimate_columns import CONFIDENCE
from deploy.terminal.escape import shown
from deploy.terminal.tables import add_columns, print_whole

_NOISE_ALONE: Final = "± noise alone"
"""Heading of what is around a figure that is biased by more than noise."""
_INTERVAL: Final = f"{CONFIDENCE:.0%} interval"
_MOST_DECIMALS: Final = 8
_SHRUNK_FROM: Final = 3
"""Fewer numbers have nothing to be shrunk by; see analyzer/estimation/shrinkage.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure with its interval."""

    name: str
    """Anybody's text: shown as such, never run."""
    figure: float
    low: float
    high: float
    more: tuple[str, ...] = ()
    """What further columns say."""
    truth: float | None = None
    """Known in a demo only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateTable:
    """Figures that are read together."""

    title: str
    figure: str
    """Heading of the figures: mean, share."""
    name: str
    """Heading of what they are of."""
    interval: str
    more: tuple[str, ...]
    """Headings of further columns."""
    lines: tuple[Line, ...]
    size: int
    """Lines that there are, of which the largest or first are here."""
    notes: tuple[str, ...]
    """What a reader must know, in sentences."""
    decimals: int | None = None
    """Of figures and intervals: as many as noise leaves sense to; None for four digits of each."""

    def written(self, number: float) -> str:
        """Write a figure of the table as it is shown."""
        return written(number, self.decimals)


def written(number: float, decimals: int | None) -> str:
    """Write a number with so many decimals; None for four digits."""
    if decimals is None or not math.isfinite(number):
        return f"{number:.4g}"
    return f"{number:z.{decimals}f}"  # z: what rounds to 0 has no sign


def decimals_of(errors: Vector) -> int | None:
    """Give the decimals that show two digits of the least of these standard errors."""
    least = float(errors.min(initial=math.inf))
    if not 0 < least < math.inf:
        return None
    return min(max(0, 1 - math.floor(math.log10(least))), _MOST_DECIMALS)


def _names(labels: Sequence[str], size: int, of: str) -> Sequence[str]:
    return labels or [f"{of} {place}" for place in range(size)]


def of_means(
    means: Means, labels: Sequence[str], *, most: int, truth: Vector | None = None
) -> EstimateTable:
    """
    Give the table of the means of numbers.

    Args:
        means: The estimate.
        labels: The numbers' names, or nothing.
        most: Lines at most, the first ones.
        truth: True means, in a demo.
    """
    size = len(means.means)
    shrinks = size >= _SHRUNK_FROM
    names = ("mean",) if size == 1 and not labels else _names(labels, size, "number")
    low, high = means.interval(CONFIDENCE)
    decimals = decimals_of(means.standard_errors)
    note = "Each interval covers the mean of these very people with 95 % probability, by itself."
    if shrinks:
        note += (
            " The shrunk mean is drawn to the middle of the range as far as the noise says: closer "
            "to the truth where there are many numbers and few people, but biased."
        )
    interval = _INTERVAL
    if not means.unbiased:
        interval = _NOISE_ALONE
        note = (
            "Means are biased: vectors were projected, and what the projection leaves out is in no "
            "interval, which is of noise alone."
        )
    return EstimateTable(
        title=f"The mean of {'a number' if size == 1 else f'each of {size:,} numbers'}",
        figure="mean",
        name="number",
        interval=interval,
        more=("standard error", "shrunk") if shrinks else ("standard error",),
        decimals=decimals,
        lines=tuple(
            Line(
                name=names[place],
                figure=float(means.means[place]),
                low=float(low[place]),
                high=float(high[place]),
                more=tuple(
                    written(float(column[place]), decimals)
                    for column in (means.standard_errors, means.shrunk)[: 2 if shrinks else 1]
                ),
                truth=None if truth is None else float(truth[place]),
            )
            for place in range(min(most, size))
        ),
        size=size,
        notes=(note,),
    )


def of_key_values(
    found: KeyValues,
    spec: KeyValueSpec,
    labels: Sequence[str],
    *,
    most: int,
    truth: tuple[Vector, Vector] | None = None,
) -> tuple[EstimateTable, ...]:
    """
    Give the tables of how many own each key, and of their values' means.

    Where reports tell nothing of who owns a key there is one table, of means with fakes.

    Args:
        found: The estimate.
        spec: What the task says of pairs.
        labels: The keys' names, or nothing.
        most: Lines at most: those of the most frequent keys, or the first. Keys about which nobody
            reported have none.
        truth: True shares and means, in a demo.
    """
    size = len(found.means_with_fakes)
    names = _names(labels, size, "key")
    shares, means = (None, None) if truth is None else truth
    fakes = "what the task names for it" if spec.fakes else "the middle of the range"
    told = np.flatnonzero(found.reports)
    unknown = f"Nobody reported on {size - len(told):,} of the keys: nothing is known of them."
    more = (unknown,) if len(told) < size else ()
    if found.owners is None:
        return (
            _of_keys(
                names,
                told[:most].tolist(),
                (found.means_with_fakes, found.errors_with_fakes),
                found.noise_reach(CONFIDENCE),
                means,
                title=f"The mean of what was said of each of {size:,} keys, fakes included",
                figure="mean with fakes",
                interval=_NOISE_ALONE,
                note="This task does not ask who owns a key. Whoever does not answers with a fake "
                f"value, {fakes}, and how far these pull a mean is in no interval.",
                reports=found.reports,
                more_notes=more,
            ),
        )
    owners = found.owners
    by_share = np.argsort(-owners.frequencies[told], kind="stable")
    order = told[by_share][:most].tolist()
    return (
        _of_keys(
            names,
            order,
            (owners.frequencies, owners.frequency_errors),
            owners.frequency_interval(CONFIDENCE),
            shares,
            title=f"The share of users who own each of {size:,} keys",
            figure="share",
            note="Each interval covers its true share with 95 % probability, by itself.",
            reports=found.reports,
            more_notes=more,
        ),
        _of_keys(
            names,
            order,
            (owners.means, owners.mean_errors),
            owners.mean_interval(CONFIDENCE),
            means,
            title="The mean of the values of those who own it",
            figure="mean",
            note=f"A key that is not owned is sometimes reported with a fake value, {fakes}, which "
            "pulls means towards it. That is taken off by the estimated shares; where few own a "
            "key it leaves little to go by.",
            reports=found.reports,
        ),
    )


def _of_keys(
    names: Sequence[str],
    order: list[int],
    figures: tuple[Vector, Vector],
    ends: tuple[Vector, Vector],
    truth: Vector | None,
    *,
    title: str,
    figure: str,
    note: str,
    reports: NDArray[np.int64],
    more_notes: tuple[str, ...] = (),
    interval: str = _INTERVAL,
) -> EstimateTable:
    (values, errors), (low, high) = figures, ends
    decimals = decimals_of(errors[order])
    return EstimateTable(
        title=title,
        figure=figure,
        name="key",
        interval=interval,
        more=("standard error", "reports"),
        decimals=decimals,
        lines=tuple(
            Line(
                name=names[key],
                figure=float(values[key]),
                low=float(low[key]),
                high=float(high[key]),
                more=(written(float(errors[key]), decimals), f"{reports[key]:,}"),
                truth=None if truth is None else float(truth[key]),
            )
            for key in order
        ),
        size=len(values),
        notes=(note, *more_notes),
    )


def print_table(table: EstimateTable, console: Console) -> None:
    """Print a table and its notes; no text of it steers the terminal."""
    known = any(line.truth is not None for line in table.lines)
    shown_of = f", {len(table.lines):,} of them" * (len(table.lines) < table.size)
    printed = Table(title=f"{table.title}{shown_of}")
    figures = (*(("truth",) if known else ()), table.figure, table.interval, *table.more)
    add_columns(printed, {table.name: "left", **dict.fromkeys(figures, "right")})
    for line in table.lines:
        printed.add_row(
            shown(line.name),
            *([table.written(line.truth)] if line.truth is not None else []),
            table.written(line.figure),
            f"{table.written(line.low)} … {table.written(line.high)}",
            *line.more,
        )
    print_whole(printed, console)
    for note in table.notes:
        console.print(note)
