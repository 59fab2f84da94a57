"""Values: parsed from text with errors that never contain them, drawn at random, and described."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from shuffledp.common.errors import UsageError, ValueRangeError
from shuffledp.common.mechanisms.discovery.prefix_hashing import PrefixHashing
from shuffledp.common.mechanisms.key_value.pairs import Pairs
from shuffledp.common.messages.submission import Value, parse_number
from shuffledp.common.protocols import Kind
from shuffledp.common.task import domain_spec, draft, specs, view_specs
from shuffledp.common.task.domain_spec import GROUP_SEPARATOR, MAX_GROUPS, AttributeSpec
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.task import Task

_SIZES: Final = "the number of values of each attribute, such as 20,20,5"
_OPEN_VALUES: Final = {
    "text": "any text",
    "code": "a whole number",
    "hash": "any text, found by its hash,",
    "spell": "a text with one of the labels as its hash,",
}


def parse_breakdown(text: str) -> domain_spec.BreakdownSpec:
    """Parse an attribute and its values, such as `country=DE,FR`; raise UsageError if absent."""
    attribute, separator, groups = text.partition("=")
    if not separator:
        raise UsageError("a breakdown is an attribute and its values, such as country=DE,FR")
    return domain_spec.BreakdownSpec(
        attribute=attribute.strip(), groups=tuple(group.strip() for group in groups.split(","))
    )


def parse_tables(sizes: str, pairs: str = "", *, margins: bool = False) -> draft.TableDraft:
    """
    Parse attributes by their numbers of values, such as 20,20,5, and pairs of them, such as 1:2.

    Attributes and values are named by their numbers, from 1. Raises UsageError.
    """
    sizes, pairs = (text.replace(" ", "") for text in (sizes, pairs))
    if not sizes:
        raise UsageError(f"--attribute-sizes is missing: {_SIZES}")
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", sizes):
        raise UsageError(f"--attribute-sizes must be whole numbers: {_SIZES}")
    if not re.fullmatch(r"(\d+(:\d+)*(,\d+(:\d+)*)*)?", pairs):
        raise UsageError("--pairs must be pairs of attributes by number, from 1, such as 1:2,1:3")
    numbers = [*map(int, sizes.split(","))]
    for place, number in enumerate(numbers, start=1):  # before their names are made
        specs.check_int_range(f"attribute {place}'s number of values", number, 2, MAX_GROUPS)
    attributes = tuple(
        AttributeSpec(name=f"attribute {place}", labels=tuple(map(str, range(1, size + 1))))
        for place, size in enumerate(numbers, start=1)
    )
    names = [pair.split(":") for pair in pairs.split(",") if pair]
    chosen = tuple(tuple(f"attribute {number}" for number in pair) for pair in names)
    return draft.TableDraft(attributes=attributes, tables=chosen, margins=margins)


def parse_range(text: str) -> tuple[float, float]:
    """Parse a range such as 18:65 or 620 to 1,250; raise UsageError if it is none."""
    low, _, high = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text).replace(" to ", ":").partition(":")
    try:
        return parse_number(low, ""), parse_number(high, "")
    except ValueRangeError as error:
        raise UsageError("--range must be two numbers, such as 18:65") from error


def describe_values(task: Task) -> str:
    """Describe the number and range of the values that a task collects."""
    return _VALUES[task.kind].describe(task)


def value_of(task: Task, item: int) -> Value:
    """Return a value that devices encode as this item: for ordered buckets, the middle of one."""
    if task.edges is None:
        return item
    group, bucket = divmod(item, task.edges.size)
    number = _middle(task.edges, bucket)
    if task.breakdown is None:
        return number
    return f"{task.breakdown.groups[group]}{GROUP_SEPARATOR}{number!r}"


def _middle(edges: domain_spec.EdgesSpec, bucket: int) -> float:
    return float(edges.edges[bucket : bucket + 2].mean())


def value_of_attributes(attributes: Sequence[AttributeSpec], numbers: Sequence[int]) -> str:
    """Return a value that devices encode as these numbers of each attribute's values."""
    return GROUP_SEPARATOR.join(
        repr(_middle(each.edges, number)) if each.edges else each.labels[number]
        for each, number in zip(attributes, numbers, strict=True)
    )


def joined(encoded: Sequence[Any]) -> Any:  # noqa: ANN401  # the type depends on the kind
    """Join several users' encoded values; at least one."""
    if not isinstance(encoded[0], Pairs):
        return np.concatenate(encoded)
    owned = np.cumsum([0, *(len(pairs.keys) for pairs in encoded)])
    return Pairs(
        offsets=owned.astype(np.int64),
        keys=np.concatenate([pairs.keys for pairs in encoded]),
        values=np.concatenate([pairs.values for pairs in encoded]),
    )


def sample_value(task: Task, rng: np.random.Generator) -> Value:
    """Draw a random value that the task accepts, for sentinels and load runs."""
    return _VALUES[task.kind].draw(task, rng)


def _draw_item(task: Task, rng: np.random.Generator) -> Value:
    return value_of(task, int(rng.integers(0, task.domain_size)))


def _draw_text(task: Task, rng: np.random.Generator) -> str:
    if task.labels:
        return task.labels[int(rng.integers(0, len(task.labels)))]
    return rng.bytes(4).hex()[: spec_as(task.mechanism, specs.RapporSpec).most_bytes]


def _draw_open_value(task: Task, rng: np.random.Generator) -> str:
    """Draw digits, which are a text and a code."""
    return str(rng.integers(0, 2**32))[: spec_as(task.mechanism, specs.OpenSpec).most_value_bytes]


def _draw_pairs(task: Task, rng: np.random.Generator) -> dict[int, float]:
    pairs = spec_as(task.mechanism, specs.KeyValueSpec)
    owned = np.flatnonzero(rng.integers(0, 2, task.domain_size))
    numbers = rng.uniform(pairs.low, pairs.high, len(owned))
    return dict(zip(owned.tolist(), numbers.tolist(), strict=True))


def _draw_numbers(task: Task, rng: np.random.Generator) -> tuple[float, ...]:
    spec = spec_as(task.mechanism, specs.RangedSpec)
    return tuple(rng.uniform(spec.low, spec.high, task.domain_size).tolist())


def _draw_attributes(task: Task, rng: np.random.Generator) -> str:
    attributes = spec_as(task.mechanism, view_specs.TableSpec).attributes
    return value_of_attributes(attributes, [int(rng.integers(0, a.size)) for a in attributes])


def _describe_texts(task: Task) -> str:
    spec = spec_as(task.mechanism, specs.RapporSpec)
    f = spec.permanent_weight / specs.PERMANENT_SUM
    p, q = spec.unset_weight / specs.INSTANT_SUM, spec.set_weight / specs.INSTANT_SUM
    values = f"one of {spec.bits:,} texts"
    if spec.encoding != "labels":
        values = (
            f"a text of up to {spec.most_bytes:,} bytes; Bloom filters of {spec.bits:,} bits, "
            f"{spec.hashes} hashes, {spec.cohorts:,} cohorts"
        )
    return f"{values}; f {f:.4g}, p {p:.4g}, q {q:.4g}"


def _describe_open_values(task: Task) -> str:
    spec = spec_as(task.mechanism, specs.OpenSpec)
    values, levels = _OPEN_VALUES[spec.encoding], PrefixHashing.of(spec).levels
    return f"{values} of up to {spec.most_value_bytes:,} bytes; {levels} levels"


def _describe_items(task: Task) -> str:
    values = f"one of {task.domain_size:,} items"
    if task.edges is not None:
        low, high = task.edges.edges[[0, -1]]
        values = (
            f"a number from {low:,.15g} to {high:,.15g} {task.edges.unit}".rstrip()
            + f", in {task.edges.size:,} {task.edges.spacing} buckets; others are "
            + ("counted in the nearest" if task.edges.outside == "clip" else "refused")
        )
    if task.breakdown is not None:
        values += f"; {len(task.breakdown.groups):,} groups by {task.breakdown.attribute}"
    return values + _labelled(task)


def _describe_numbers(task: Task) -> str:
    spec, size = spec_as(task.mechanism, specs.RangedSpec), task.domain_size
    numbers = "a number" if size == 1 else f"{size:,} numbers, each"
    return f"{numbers} from {spec.low:,.15g} to {spec.high:,.15g}{_labelled(task)}"


def _describe_pairs(task: Task) -> str:
    spec = spec_as(task.mechanism, specs.KeyValueSpec)
    each = f"each owned key (of {task.domain_size:,})"
    return f"a number from {spec.low:,.15g} to {spec.high:,.15g} for {each}{_labelled(task)}"


def _describe_attributes(task: Task) -> str:
    spec = spec_as(task.mechanism, view_specs.TableSpec)
    shown = ", ".join(f"{each.name} ({each.size:,} values)" for each in spec.attributes)
    return f"{shown}; tables: {len(spec.tables):,}"


def _labelled(task: Task) -> str:
    return ", labelled" * bool(task.labels)


class _Values(NamedTuple):
    """What is shown and drawn for one kind of value."""

    describe: Callable[[Task], str]
    draw: Callable[[Task, np.random.Generator], Value]


_VALUES: Final[Mapping[Kind, _Values]] = {
    "categorical": _Values(_describe_items, _draw_item),
    "ordered": _Values(_describe_items, _draw_item),
    "string": _Values(_describe_texts, _draw_text),
    "open": _Values(_describe_open_values, _draw_open_value),
    "mean": _Values(_describe_numbers, lambda task, rng: _draw_numbers(task, rng)[0]),
    "vector": _Values(_describe_numbers, _draw_numbers),
    "key-value": _Values(_describe_pairs, _draw_pairs),
    "table": _Values(_describe_attributes, _draw_attributes),
}
