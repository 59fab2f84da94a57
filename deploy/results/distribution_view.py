"""Tables, columns and JSON fields of quantiles, ranges, and shares within groups."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from shuffledp.common.errors import SettingsError
from shuffledp.common.messages.result import Histogram, Result
from shuffledp.common.task.domain_spec import GROUP_SEPARATOR, EdgesSpec
from shuffledp.common.task.task import Task
from shuffledp.deploy.results.distribution import Distribution, Estimated
from shuffledp.deploy.results.estimate_table import EstimateTable, ResultView
from shuffledp.deploy.tasks.value_parser import parse_range

DEFAULT_QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
_SPREAD_EVENLY: Final = "Numbers are taken as spread evenly within their bucket."
_CLIPPED: Final = (
    " The first and the last bucket include all numbers outside the edges; a quantile in them is "
    "given by their inner edge."
)
_LEFT_OUT: Final = (
    "Groups without figures of their own, such as quantiles, since their share may be 0: {:,}."
)
_FIGURES: Final = ("estimate", "interval_low", "interval_high")
_GROUP_TABLES: Final = 5
"""Most groups with a table of their own."""
_MAX_ROWS: Final = 100
"""Most rows of a table; files and JSON have all."""


def value_names(task: Task) -> list[str]:
    """Return names of the values of one group, or of all items without a breakdown."""
    size = task.domain_size // task.groups
    if task.edges is None:
        names = [*(task.labels[:size] or map(str, range(size)))]
        if not task.breakdown:
            return names
        return [name.partition(GROUP_SEPARATOR)[2] or name for name in names]
    return bucket_names(task.edges)


def bucket_names(spec: EdgesSpec) -> list[str]:
    """Return names of ordered buckets."""
    edges = spec.edges.tolist()
    ends = edges[:: len(edges) - 1] if spec.outside == "clip" else ()
    return [_range_name(low, high, ends) for low, high in itertools.pairwise(edges)]


def item_names(task: Task) -> Sequence[str]:
    """Return names of all items: labels, or buckets or numbers, after their group."""
    if task.labels or not task.breakdown:
        return task.labels or value_names(task)
    names = value_names(task)
    return [f"{group}{GROUP_SEPARATOR}{name}" for group in task.breakdown.groups for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Quantiles and ranges to estimate from the batch of a task; checked on construction."""

    batch: Result
    task: Task
    quantiles: Sequence[float] = DEFAULT_QUANTILES
    """Shares between 0 and 1."""
    ranges: Sequence[tuple[float, float]] = ()

    def __post_init__(self) -> None:
        """Raise SettingsError if a quantile or range is out of range, or the data not ordered."""
        if self.task.edges is None:
            if (self.quantiles, self.ranges) != (DEFAULT_QUANTILES, ()):
                raise SettingsError(
                    f"quantiles and ranges are for ordered data; this task collects "
                    f"{self.task.kind} data"
                )
            return
        for share in self.quantiles:
            if not 0 < share < 1:
                raise SettingsError(f"a quantile is {share:g}; it must be above 0 and below 1")
        low, least, most, high = self.task.edges.edges[[0, 1, -2, -1]].tolist()
        for first, last in self.ranges:
            if not low <= first < last <= high:
                raise SettingsError(
                    f"the range {exact(first)}:{exact(last)} must ascend and lie between "
                    f"{exact(low)} and {exact(high)}"
                )
            cut = any(low < end < least or most < end < high for end in (first, last))
            if cut and self.task.edges.outside == "clip":
                raise SettingsError(
                    f"the range {exact(first)}:{exact(last)} ends within the first or the last "
                    "bucket, which includes all numbers outside the edges; an end must be "
                    f"{exact(low)} or {exact(high)}, or lie between {exact(least)} and "
                    f"{exact(most)}"
                )


def distribution_view(estimate: Histogram, questions: Questions) -> ResultView:
    """
    Return what a task with edges or a breakdown shows beside its items' shares.

    Tables are those of groups, of values within the largest, of quantiles and of ranges. Infinite
    ends of intervals are texts in fields.
    """
    task = questions.task
    found = Distribution.of_groups(estimate, questions.batch, task)
    groups = dict(zip(task.breakdown.groups if task.breakdown else ("",), found, strict=True))
    tables, columns = list[EstimateTable](), dict[str, Any]()
    fields: dict[str, Any] = {"kind": task.kind}
    if task.breakdown is not None:
        names, shares = value_names(task), Distribution.totals(found)
        texts = {"title": f"Share of users by {task.breakdown.attribute}", "value": "share"}
        unknown = sum(not each.is_known for each in found)
        notes = (_LEFT_OUT.format(unknown),) * bool(unknown)
        named = {"name": task.breakdown.attribute, "notes": notes}
        tables.append(_table([*groups], shares, **named, **texts))
        fields["groups"] = _rows(shares, [{"group": group} for group in groups])
        largest = np.argsort(-shares.value, kind="stable")[:_GROUP_TABLES]
        for group, each in [[*groups.items()][place] for place in largest if not task.edges]:
            if each.is_known:
                texts["title"] = f"Shares among the users of {group}"
                tables.append(_table(names, each.within, name="value", **texts))
        columns["group"] = np.repeat([*groups], len(names)).tolist()
        columns["value"] = names * len(groups)
        within = _joined([each.within for each in found])
        for key, part in zip(("share", "low", "high"), within, strict=True):
            columns[f"{key}_of_group"] = part.tolist()
    if task.edges is not None:
        edges = task.edges.edges
        fields |= {"edges": edges.tolist(), "unit": task.edges.unit}
        columns["lower_edge"] = edges[:-1].tolist() * len(found)
        columns["upper_edge"] = edges[1:].tolist() * len(found)
        below = _joined([each.cumulative for each in found])
        columns["cumulative_share"] = below.value.tolist()
        errors = (below.high - below.low) / (2 * found[0].half_width)
        columns["cumulative_error"] = errors.tolist()
        known = {group: each for group, each in groups.items() if each.is_known}
        for key, asked in (("quantiles", questions.quantiles), ("ranges", questions.ranges)):
            fields[key] = []
            if asked and known:
                table, rows = _of_numbers(key, asked, known, questions.task)
                tables.append(table)
                fields[key] = rows
    return ResultView(groups=groups, tables=tuple(tables), columns=columns, fields=fields)


def _of_numbers(
    key: str, asked: Sequence[Any], groups: Mapping[str, Distribution], task: Task
) -> tuple[EstimateTable, list[dict[str, Any]]]:
    """Return the table and the JSON rows of quantiles or ranges, for each group with a share."""
    edges, alone = cast("EdgesSpec", task.edges), task.groups == 1
    unit, texts = f" in {edges.unit}" * bool(edges.unit), dict[str, Any]()
    users = "users" if alone else "each group's users"
    if key == "quantiles":
        names = [f"{100 * share:g}\N{NO-BREAK SPACE}%" for share in asked]
        keys = [{"quantile": share} for share in asked]
        parts = [each.quantiles(asked) for each in groups.values()]
        texts |= {"title": f"Quantiles{unit}", "name": f"{users} below", "value": "number"}
        texts["logarithmic"] = edges.spacing == "logarithmic"
    else:
        ends = edges.edges[[0, -1]].tolist() if edges.outside == "clip" else ()
        names = [_range_name(low, high, ends) for low, high in asked]
        keys = [{"from": low, "to": high} for low, high in asked]
        parts = [each.ranges(asked) for each in groups.values()]
        texts |= {"title": f"Share of {users} in ranges{unit}", "name": "range", "value": "share"}
    whole = _joined(parts)
    if not alone:
        names = [f"{group}{GROUP_SEPARATOR}{name}" for group in groups for name in names]
        keys = [{"group": group, **each} for group in groups for each in keys]
    note = _SPREAD_EVENLY + _CLIPPED * (edges.outside == "clip")
    return _table(names, whole, notes=(note,), **texts), _rows(whole, keys)


def exact(number: float) -> str:
    """Return the shortest text of a number, with separators of thousands."""
    texts = (f"{number:,.{digits}g}" for digits in (15, 16, 17))
    return next((text for text in texts if float(text.replace(",", "")) == number), str(number))


def _range_name(low: float, high: float, ends: Sequence[float]) -> str:
    """Return a range's name; at `ends`, those of edges where a task clips numbers, it is open."""
    if high in ends:
        return "all" if low in ends else f"from {exact(low)}"
    return f"below {exact(high)}" if low in ends else f"{exact(low)} to {exact(high)}"


def asked_ranges(task: Task, texts: Sequence[str]) -> tuple[tuple[float, float], ...]:
    """Parse ranges: two numbers such as 18:65, or a bucket's name; or raise UsageError."""
    named = dict[str, tuple[float, float]]()
    if task.edges is not None:
        edges = task.edges.edges.tolist()
        named = dict(zip(value_names(task), itertools.pairwise(edges), strict=True))
    return tuple(named.get(text) or parse_range(text) for text in texts)


def _joined(parts: Sequence[Estimated]) -> Estimated:
    return Estimated(*map(np.concatenate, zip(*parts, strict=True)))


def _table(names: Sequence[str], found: Estimated, **texts: Any) -> EstimateTable:  # noqa: ANN401  # other fields
    return EstimateTable(
        names=names,
        values=found.value,
        errors=(found.high - found.low) / 4,  # for the number of decimals only
        given_ends=(found.low, found.high),
        shown=range(min(len(names), _MAX_ROWS)),
        **texts,
    )


def _rows(found: Estimated, keys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the JSON fields of each estimate after those of its key."""
    figures = zip(*found, strict=True)
    return [
        {**key, **dict(zip(_FIGURES, own, strict=True))}
        for key, own in zip(keys, figures, strict=True)
    ]
