"""Render the page of one result, for any kind of value, and the page of the ledger."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from shuffledp.common.crypto.hpke import fingerprint, suite_named
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.signed import influence_on
from shuffledp.common.messages import result
from shuffledp.common.messages.guarantee import REPLACE_ONE, claimed, rounded_up
from shuffledp.common.task import canonical, domain_spec, spec_forms, specs, view_specs
from shuffledp.common.task.task import Task
from shuffledp.deploy.pages.guarantee_sentences import guarantee_sentences
from shuffledp.deploy.pages.page import packed, render
from shuffledp.deploy.results import table_view
from shuffledp.deploy.results.estimate_table import EstimateTable, ResultView
from shuffledp.deploy.results.ledger import LedgerView
from shuffledp.deploy.terminal.tables import CLAIM_ROOM_NOTE

_SCRIPTS: Final = (
    *("page_data.js", "values.js", "numbers.js", "scale.js", "canvas.js", "tooltip.js"),
    *("value_tooltip.js", "overview.js", "bars.js", "download.js", "result.js"),
)
"""Scripts of a histogram's page."""
_MAP_SCRIPTS: Final = (
    *("page_data.js", "numbers.js", "canvas.js", "tooltip.js", "download.js", "heat_map.js"),
)
"""Scripts of a page with heat maps, one for each table of two attributes."""
MAX_CELLS: Final = 200_000
"""Maximum cells of all tables on a page; further tables are left out."""
MAX_VALUES: Final = 100_000
"""Maximum values on a histogram's page: four megabytes, which a browser sorts without delay."""
_PAGE_COLUMNS: Final = 7
"""Number of a histogram's columns that its page can export; distributions have more."""
_MAX_CURVES: Final = 6
_MAX_POINTS: Final = 400
_TICKS: Final = 5
_WIDTH, _HEIGHT = 640, 240
"""Size of the plot of cumulative shares, as in estimates.html."""
_SHORT_NAME: Final = 12
"""Maximum characters of a name in a narrow column."""
_MIN_WHOLE: Final = 10
"""Smallest approximate number shown without decimals."""


def result_page(found: result.Result, task: Task, view: ResultView) -> str:
    """Render the page of a result that the caller has checked against its task."""
    fields = _OWN_FIELDS.get(type(found.estimate))
    epsilon, task_id = rounded_up(claimed(found.guarantees).epsilon), found.task_digest.hex()[:12]
    source = f"{found.n_users}-users-epsilon-{epsilon}-task-{task_id}"
    shared = {"users": found.n_users, "confidence": result.CONFIDENCE, "source": source}
    own = fields(found.estimate, shared, view, task) if fields else {}
    return render(
        "result.html",
        styles=("result.css",),
        result=found,
        task=task,
        view=view,
        confidence=f"{100 * result.CONFIDENCE:.4g}\N{NO-BREAK SPACE}%",
        guarantees=guarantee_sentences(found.guarantees),
        replace_one=REPLACE_ONE,
        mechanism=_own_parameters(task),
        influence=influence_on(task),
        overhead=suite_named(task.suite).overhead_bytes,
        keys=[fingerprint(key) for key in (task.analyzer_key, *(s.key for s in task.shufflers))],
        claim_room=CLAIM_ROOM_NOTE if task.central_epsilon < task.local_epsilon else "",
        drawn=[plotted(table) for table in view.tables if table.listed],
        curves=_curves(view, task.edges) if task.edges else [],
        **{"histogram": None, "heat_map": None, "exact_intervals": False, "size": view.size, **own},
    )


def _own_parameters(task: Task) -> dict[str, Any]:
    """Return the fields of a task's mechanism, without those that only other mechanisms use."""
    spec, unused = task.mechanism, set[str]()
    fields = {canonical.key_of(each): getattr(spec, each.name) for each in dataclasses.fields(spec)}
    match spec:
        case specs.MechanismSpec(digits=1):
            unused = {"digits"}
        case specs.OpenSpec(encoding="text" | "code"):
            unused = {"most_bytes"}
        case view_specs.TableSpec(attribute_names=names, tables=tables):
            by_name = tuple(tuple(names[each] for each in table) for table in tables)
            fields |= {"attributes": names, "views": by_name}
        case specs.NumberSpec():
            alone = {"sampled"} if task.domain_size == 1 else set()
            unused = {name for name in fields if not fields[name]} - {"low", "high"} | alone
    return {name: value for name, value in fields.items() if name not in unused}


def histogram_data(
    histogram: result.Histogram, shared: Mapping[str, Any], view: ResultView, labels: Sequence[str]
) -> dict[str, Any]:
    """Return data for the page's scripts: of too many values, those with the largest estimates."""
    size, truth = len(histogram.frequencies), view.truth
    held = np.arange(size)
    if size > MAX_VALUES:
        held = np.sort(np.argpartition(histogram.frequencies, -MAX_VALUES)[-MAX_VALUES:])
    return {
        **shared,
        "columns": list(view.columns)[:_PAGE_COLUMNS],
        "ordered": any(len(each.edges) for each in view.groups.values()),
        "intervals": {
            name: [packed(ends[held], "<f4") for ends in histogram.interval(confidence)]
            for name, confidence in (
                ("own", result.CONFIDENCE),
                ("all", result.simultaneous_confidence(result.CONFIDENCE, size)),
            )
        },
        "labels": [labels[item] for item in held.tolist()] if labels else None,
        "items": None if len(held) == size else packed(held, "<u4"),
        "estimate": packed(histogram.frequencies[held], "<f4"),
        "error": packed(histogram.standard_errors[held], "<f4"),
        "refined": packed(histogram.refined[held], "<f4"),
        "truth": None if truth is None else packed(truth[held], "<f4"),
    }


def _histogram_fields(
    histogram: result.Histogram, shared: Mapping[str, Any], view: ResultView, task: Task
) -> dict[str, Any]:
    [table, *_], named = view.tables, bool(task.labels or task.edges or task.breakdown)
    low, high = histogram.interval(result.CONFIDENCE)
    half_width, misses = float(np.median(high - low)) / 2, (1 - result.CONFIDENCE) * view.size
    return {
        "scripts": _SCRIPTS,
        "data": histogram_data(histogram, shared, view, table.names if named else ()),
        "histogram": {
            "held": min(view.size, MAX_VALUES),
            "long_names": max(map(len, table.names)) > _SHORT_NAME,
            "missed": f"{100 * (1 - result.CONFIDENCE):.4g}\N{NO-BREAK SPACE}%",
            "expected_misses": f"{misses:,.0f}" if misses >= _MIN_WHOLE else f"{misses:.2g}",
            "typical_share": table.format(half_width),
            "typical_users": f"{math.ceil(half_width * shared['users']):,}",
        },
    }


def _heat_map_fields(
    _: result.ShareTables, shared: Mapping[str, Any], view: ResultView, task: Task
) -> dict[str, Any]:
    """Return the fields of a page on tables: heat maps of all that fit, one by one."""
    spec = spec_forms.spec_as(task.mechanism, view_specs.TableSpec)
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
        "scripts": _MAP_SCRIPTS,
        "data": {
            **shared,
            "attributes": [
                {"name": each.name, "values": table_view.names_of(each)} for each in spec.attributes
            ],
            "tables": tables,
        },
    }


_OWN_FIELDS: Final[Mapping[type, Callable[[Any, Any, ResultView, Task], dict[str, Any]]]] = {
    result.Histogram: _histogram_fields,
    result.ShareTables: _heat_map_fields,
}
"""Fields, scripts and data that only pages of some estimates have."""


def _curves(view: ResultView, spec: domain_spec.EdgesSpec) -> list[dict[str, Any]]:
    """Return points of plots of cumulative shares, for all users or the first groups."""
    edges = spec.edges
    scale = np.log(edges) if spec.spacing == "logarithmic" else edges
    x = _WIDTH * (scale - scale[0]) / (scale[-1] - scale[0])
    kept = np.unique(np.linspace(0, len(x) - 1, _MAX_POINTS).astype(np.int64))
    places = np.linspace(0, _WIDTH, _TICKS)
    ticks = [
        (round(at), f"{float(f'{np.interp(at, x, edges):.2g}'):,.12g}") for at in places.tolist()
    ]

    def line(shares: Vector) -> list[str]:
        y = _HEIGHT * (1 - np.clip(np.append(0.0, shares), 0, 1))
        return [f"{x[at]:.1f},{y[at]:.1f}" for at in kept]

    curves = []
    for name, each in [item for item in view.groups.items() if item[1].is_known][:_MAX_CURVES]:
        shares, low, high = map(line, each.cumulative)
        truth = line(np.cumsum(view.truth)) if view.truth is not None and not name else []
        drawn = {"line": shares, "band": low + high[::-1], "truth": truth}
        points = {key: " ".join(places) for key, places in drawn.items()}
        curves.append({"name": name, "ticks": ticks, **points})
    return curves


def releases_page(ledger: LedgerView) -> str:
    """Render the page of a verified ledger: releases, and decisions on quarantined batches."""
    return render("releases.html", styles=("releases.css",), ledger=ledger)


def plotted(table: EstimateTable) -> dict[str, Any]:
    """Return a table, its rows' positions on one axis in percent, and the ends of the axis."""
    rows = [
        (row.low, row.high, row.value, *(() if row.truth is None else (row.truth,)))
        for row in table.rows
    ]
    ends = [end for row in rows for end in row if math.isfinite(end)]
    ends += [0.0] * (table.value in {"association", "share"})  # parts, of all or of the largest
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    scale: Callable[[float], float] = math.log if table.logarithmic and low > 0 else float

    def place(number: float) -> float:
        first, at, last = map(scale, (low, min(max(number, low), high), high))
        return round(100 * (at - first) / ((last - first) or 1.0), 2)

    return {
        "table": table,
        "marks": [tuple(map(place, row)) for row in rows],
        "zero": place(0.0) if low <= 0 <= high else None,
        "ends": (table.format(low), table.format(high)),
    }
