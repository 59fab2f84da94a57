"""Data for the heat maps on a result's page: one for each table of two attributes."""

from typing import Any, Final

from shuffledp.common.messages.result import CONFIDENCE, Result, ShareTables
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.task import Task
from shuffledp.common.task.view_specs import TableSpec
from shuffledp.deploy.pages.page import packed
from shuffledp.deploy.results.estimate_table import ResultView
from shuffledp.deploy.results.table_view import names_of

_SCRIPTS: Final = (
    *("page_data.js", "numbers.js", "canvas.js", "tooltip.js", "download.js", "heat_map.js"),
)
MAX_CELLS: Final = 200_000
"""Maximum cells of all tables on a page; further tables are left out."""


def heat_map_fields(
    estimate: ShareTables, result: Result, view: ResultView, task: Task
) -> dict[str, Any]:
    """Return the fields of a page on tables: heat maps of all that fit, one by one."""
    spec = spec_as(task.mechanism, TableSpec)
    pairs = [number for number, each in enumerate(spec.views) if len(each) > 1]
    drawn = [table for table in view.tables if not table.listed]
    tables, room = list[dict[str, Any]](), MAX_CELLS
    for number, table in zip(pairs, drawn, strict=True):
        shares = estimate.views[number]
        if len(shares.shares) > room:
            continue
        room -= len(shares.shares)
        low, high = shares.interval(CONFIDENCE)
        tables.append(
            {
                "attributes": spec.views[number],
                "share": packed(shares.shares, "<f4"),
                "error": shares.standard_error,
                "low": packed(low, "<f4"),
                "high": packed(high, "<f4"),
                "truth": None if table.truth is None else packed(table.truth, "<f4"),
            }
        )
    fields: dict[str, Any] = {"exact_intervals": True, "size": len(spec.views)}
    if pairs:
        fields["heat_map"] = {"held": len(tables), "number": len(pairs)}
    if not tables:
        return fields
    return fields | {
        "scripts": _SCRIPTS,
        "data": {
            "users": result.n_users,
            "confidence": CONFIDENCE,
            "attributes": [
                {"name": each.name, "values": names_of(each)} for each in spec.attributes
            ],
            "tables": tables,
        },
    }
