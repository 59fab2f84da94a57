"""Data for the heat maps on a result's page: one for each table of two attributes."""

from collections.abc import Mapping
from typing import Any, Final

from shuffledp.common.messages.result import ShareTables
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
    _: ShareTables, shared: Mapping[str, Any], view: ResultView, task: Task
) -> dict[str, Any]:
    """Return the fields of a page on tables: heat maps of all that fit, one by one."""
    spec = spec_as(task.mechanism, TableSpec)
    pairs = [attributes for attributes in spec.tables if len(attributes) > 1]
    drawn = [table for table in view.tables if not table.listed]
    tables, room = list[dict[str, Any]](), MAX_CELLS
    for attributes, table in zip(pairs, drawn, strict=True):
        if len(table.values) > room:
            continue
        room -= len(table.values)
        low, high = table.ends
        tables.append(
            {
                "attributes": attributes,
                "share": packed(table.values, "<f4"),
                "error": float(table.errors[0]),
                "low": packed(low, "<f4"),
                "high": packed(high, "<f4"),
                "truth": None if table.truth is None else packed(table.truth, "<f4"),
            }
        )
    counts = {"held": len(tables), "number": len(pairs)} if pairs else None
    fields = {"exact_intervals": True, "size": len(spec.tables), "heat_map": counts}
    if not tables:
        return fields
    return fields | {
        "scripts": _SCRIPTS,
        "data": {
            **shared,
            "attributes": [
                {"name": each.name, "values": names_of(each)} for each in spec.attributes
            ],
            "tables": tables,
        },
    }
