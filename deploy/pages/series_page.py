"""Render the page of a series: a chart of each value over its rounds, users and ε."""

from typing import Any, Final

import numpy as np

from common.messages.result import Figures
from deploy.pages.page import render
from deploy.results.estimate_table import EstimateTable
from deploy.results.series import SeriesResults
from deploy.tasks.schedule import Series

_WIDTH: Final = 480
_HEIGHT: Final = 180
_LEFT: Final = 64
"""Room for the labels of the vertical axis."""
_EDGE: Final = 12
"""Room at the other edges; below, there is twice as much for the labels of the rounds."""


def series_page(series: Series, results: SeriesResults, *, version: str) -> str:
    """Render the page of a series' results."""
    released = [row for row in results.rows() if row["n_users"] is not None]
    return render(
        "series.html",
        version=version,
        styles=("releases.css", "series.css"),
        title=f"Rounds of {series.draft.population}",
        series=series,
        rows=results.rows(),
        released=released,
        spent=max((row["composed_epsilon"] for row in released), default=0.0),
        charts=[_chart(results, table, column) for column, table in enumerate(results.tables)],
        size=(_WIDTH, _HEIGHT, _LEFT, _EDGE),
        note=results.note,
    )


def _chart(results: SeriesResults, table: EstimateTable, column: int) -> dict[str, Any]:
    """Return the coordinates of a value's estimates, smoothed line and band, and axis labels."""
    level, low, high = (array[:, column] for array in (results.smoothed.levels, *results.ends))
    drawn = np.concatenate([low, high, *table.ends])
    drawn = drawn[np.isfinite(drawn)]
    least, most = float(drawn.min()), float(drawn.max())

    def points(rounds: Figures, values: Figures) -> list[tuple[float, float]]:
        """Place values on the drawing, those outside it at its edge."""
        share = (most - np.clip(values, least, most)) / ((most - least) or 1.0)
        across = (rounds - 1) / max(1, len(results.rounds) - 1)
        x = _LEFT + across * (_WIDTH - _LEFT - _EDGE)
        y = _EDGE + share * (_HEIGHT - 3 * _EDGE)
        return list(zip(x.round(1).tolist(), y.round(1).tolist(), strict=True))

    every, released = np.arange(1.0, len(level) + 1), np.array([*results.estimates], dtype=float)
    whiskers = zip(*(points(released, end) for end in table.ends), strict=True)
    return {
        "name": list(results.shown.values())[column],
        "band": points(every, high) + points(every, low)[::-1],
        "line": points(every, level),
        "marks": list(zip(points(released, table.values), whiskers, table.rows, strict=True)),
        "ends": (table.format(most), table.format(least)),
        "table": table,
    }
