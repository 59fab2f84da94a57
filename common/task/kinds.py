"""
The kinds of value that a task may collect: the facts that all parties and tools rely on.

What a floor does with a kind is a row of that floor's table: the mechanisms' in
common/mechanisms/registry.py, the device's encoders, the analyzer's estimators, and the tools'.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shuffledp.common.errors import UsageError
from shuffledp.common.protocols import Kind
from shuffledp.common.task import specs


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFacts:
    """The facts of one kind of value."""

    description: str
    """Description of one person's value."""
    sizes: tuple[int, int]
    """Least and largest domain_size: number of items, labels, numbers or keys."""
    counted: str = ""
    """Meaning of the domain size; empty if it need not be stated."""
    histogram: bool = False
    """Whether the result is a histogram of items."""
    counted_in_cells: bool = True
    """Whether reports are counted by cell; otherwise the estimator needs the reports themselves."""
    tables: tuple[str, ...] = ()
    """Tables that a draft may have, of those that not every draft may."""
    options: tuple[str, ...] = ()
    """Options of tools for this kind, of those that are not for every kind."""
    requirements: tuple[str, ...] = ()
    """Requirements on a plan for this kind, of those that are not for every kind."""


_ITEM_TABLES: Final = ("edges", "breakdown")
_TRUST: Final = ("trust", "shufflers", "coalition_epsilon", "messages_cap", "bytes_cap")
_ITEM_REQUIREMENTS: Final = (*_TRUST, "influence_cap", "rounds", "max_mse")
_RANGE: Final = ("low", "high", "value_range")
_TWO: Final = "two_shufflers"

KINDS: Final[Mapping[Kind, KindFacts]] = {
    "categorical": KindFacts(
        description="an item's number",
        sizes=(2, specs.MAX_DOMAIN_SIZE),
        counted="the number of possible values",
        histogram=True,
        tables=_ITEM_TABLES,
        options=("domain_size", "breakdown", "accounting", "figure_number", _TWO),
        requirements=(*_ITEM_REQUIREMENTS, "head"),
    ),
    "ordered": KindFacts(
        description="a number, counted in buckets",
        sizes=(2, specs.MAX_DOMAIN_SIZE),
        counted="the number of buckets",
        histogram=True,
        tables=_ITEM_TABLES,
        options=(*_RANGE, "domain_size", "breakdown", "spacing", "unit", "prefix", "buckets", _TWO),
        requirements=_ITEM_REQUIREMENTS,
    ),
    "string": KindFacts(
        description="a text",
        sizes=(1, specs.MAX_DOMAIN_SIZE),
        tables=("texts",),
        options=("empty_values",),
    ),
    "open": KindFacts(
        description="a text or a code that no list holds",
        sizes=(1, specs.OPEN_BUCKETS[1]),
        counted_in_cells=False,
        tables=("open",),
        options=("encoding", "code_bytes"),
    ),
    "mean": KindFacts(
        description="a number",
        sizes=(1, 1),
        tables=("numbers",),
        options=_RANGE,
        requirements=_TRUST,
    ),
    "vector": KindFacts(
        description="a list of numbers",
        sizes=(2, specs.MAX_DIMENSIONS),
        counted="the length of a vector",
        tables=("numbers",),
        options=(*_RANGE, "domain_size"),
        requirements=_TRUST,
    ),
    "key-value": KindFacts(
        description="pairs of a key and a number",
        sizes=(1, specs.MAX_KEYS),
        counted="the number of keys",
        tables=("pairs",),
        options=(*_RANGE, "domain_size", "empty_values"),
    ),
    "table": KindFacts(
        description="a value for each of several attributes",
        sizes=(2, specs.MAX_ATTRIBUTES),
        tables=("tables",),
        options=("attribute_sizes", "attributes", "pairs", "margins", "margin_share"),
        requirements=(*_TRUST, "influence_cap", "rounds", "margin_share"),
    ),
}
ITEM_KINDS: Final = tuple(kind for kind, facts in KINDS.items() if facts.histogram)
"""Kinds whose result is a histogram of items."""
TABLES: Final = tuple(dict.fromkeys(name for row in KINDS.values() for name in row.tables))
"""Tables of a draft that only some kinds have."""
_ONE_ROUND: Final = ": plan one round, with central_epsilon and delta divided by their number"


def check_options(kind: Kind, given: Mapping[str, str]) -> None:
    """Raise UsageError for an option or requirement, shown as `given` maps it, of other kinds."""
    for name, shown in given.items():
        fits = [each for each, row in KINDS.items() if name in (*row.options, *row.requirements)]
        if fits and kind not in fits:
            rule = f"{shown} is for data of these kinds: {', '.join(fits)}; this is {kind} data"
            raise UsageError(rule + _ONE_ROUND * (name == "rounds"))
