"""Render the page of a series: a chart of each value over its rounds, users and ε."""

from itertools import chain
from typing import Any, Final

import numpy as np

from shuffledp.common.messages.result import Figures
from shuffledp.common.protocols import protocol_named
from shuffledp.common.task.kinds import KINDS
from shuffledp.deploy.pages.page import render
from shuffledp.deploy.results.estimate_table import EstimateTable
from shuffledp.deploy.results.series import SeriesResults
from shuffledp.deploy.tasks.schedule import Series
from shuffledp.deploy.terminal.durations import format_times

_WIDTH: Final = 480
_HEIGHT: Final = 180
_LEFT: Final = 64
"""Room for the labels of the vertical axis."""
_EDGE: Final = 12
"""Room at the other edges; below, there is twice as much for the labels of the rounds."""


def series_page(series: Series, results: SeriesResults) -> str:
    """Render the page of a series' results."""
    released = [row for row in results.rows() if row["n_users"] is not None]
    ends = (table.ends for table in results.tables)
    drawn = np.concatenate([[0.0], *map(np.ravel, results.ends), *chain(*ends)])
    scale = (float(drawn[np.isfinite(drawn)].min()), float(drawn[np.isfinite(drawn)].max()))
    kind = protocol_named(series.draft.protocol).kind
    return render(
        "series.html",
        styles=("releases.css", "series.css"),
        series=series,
        results=results,
        kind=kind,
        description=KINDS[kind].description,
        budgets=results.budgets,
        rows=results.rows(),
        times=format_times([each.deadline for each in results.rounds]),
        released=released,
        charts=[_chart(results, each, column, scale) for column, each in enumerate(results.tables)],
        size=(_WIDTH, _HEIGHT, _LEFT, _EDGE),
        note=results.note,
    )


def _chart(
    results: SeriesResults, table: EstimateTable, column: int, scale: tuple[float, float]
) -> dict[str, Any]:
    """Return the coordinates of a value's estimates, smoothed line and band, and axis labels."""
    level, low, high = (array[:, column] for array in (results.smoothed.levels, *results.ends))
    least, most = scale

    def points(rounds: Figures, values: Figures) -> list[tuple[float, float]]:
        """Place values on the drawing, those outside it at its edge."""
        share = (most - np.clip(values, least, most)) / ((most - least) or 1.0)
        across = (rounds - 1) / max(1, len(results.rounds) - 1)
        x = _LEFT + across * (_WIDTH - _LEFT - _EDGE)
        y = _EDGE + share * (_HEIGHT - 3 * _EDGE)
        return list(zip(x.round(1).tolist(), y.round(1).tolist(), strict=True))

    every, released = np.arange(1.0, len(level) + 1), np.array([*results.estimates], dtype=float)
    [(_, zero)] = points(np.ones(1), np.zeros(1))
    shifts = every[results.smoothed.shifts[:, column]]
    whiskers = zip(*(points(released, end) for end in table.ends), strict=True)
    return {
        "name": list(results.shown.values())[column],
        "band": points(every, high) + points(every, low)[::-1],
        "line": points(every, level),
        "shifts": list(
            zip(shifts.astype(int).tolist(), points(shifts - 0.5, 0 * shifts), strict=True)
        ),
        "marks": list(zip(points(released, table.values), whiskers, table.rows, strict=True)),
        "ends": tuple(map(results.tables[0].format, (most, least))),
        "zero": zero,
        "table": table,
    }
