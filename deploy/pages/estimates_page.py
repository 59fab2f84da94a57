"""The page of a result of any other kind than items: figures with their intervals, in tables."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from common.messages.result import Result
from common.task.task import Task
from deploy.pages.collection_fields import collection_fields
from deploy.pages.page import render
from deploy.results.estimate_columns import CONFIDENCE
from deploy.results.estimate_table import EstimateTable, Line
from deploy.results.verification import check_fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Where a line's figure and interval are drawn, in percent of the axis."""

    low: float
    high: float
    figure: float
    truth: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A table with its axis."""

    table: EstimateTable
    marks: tuple[Mark, ...]
    zero: float | None
    """Where 0 is on the axis, if it is on it."""
    left: str
    right: str
    """What the axis ends at."""


def estimates_page(
    result: Result,
    task: Task | None,
    tables: Sequence[EstimateTable],
    *,
    notes: Sequence[str] = (),
    size: int,
    version: str,
) -> str:
    """
    Make the page of a result: one file, which shows itself without any network or script.

    Args:
        result: What was released.
        task: Under which it was collected; None if it is not at hand.
        tables: Its estimates, or what was decoded from them.
        notes: What a reader must know beside the tables, in sentences.
        size: How many things were estimated.
        version: Of this program.

    Raises:
        WireError: The result does not fit the task.
    """
    if task is not None:
        check_fits(result, task)
    return render(
        "estimates.html",
        styles=("result.css", "estimates.css"),
        drawn=[_drawn(table) for table in tables],
        notes=tuple(notes),
        size=size,
        confidence=f"{CONFIDENCE:.0%}",
        **collection_fields(result, task, version=version),
    )


def _drawn(table: EstimateTable) -> Drawn:
    ends = [end for line in table.lines for end in _ends(line) if math.isfinite(end)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    span = (high - low) or 1.0

    def place(number: float) -> float:
        return round(100 * (min(max(number, low), high) - low) / span, 2)

    return Drawn(
        table=table,
        marks=tuple(
            Mark(
                low=place(line.low),
                high=place(line.high),
                figure=place(line.figure),
                truth=None if line.truth is None else place(line.truth),
            )
            for line in table.lines
        ),
        zero=place(0.0) if low <= 0 <= high else None,
        left=table.written(low),
        right=table.written(high),
    )


def _ends(line: Line) -> tuple[float, ...]:
    truth = () if line.truth is None else (line.truth,)
    return (line.low, line.high, line.figure, *truth)
