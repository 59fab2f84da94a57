"""Draw seeded populations of every kind of data: from shipped data, from files, or synthetic."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.mechanisms.base import Counts, Vector
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.messages.submission import Value, parse_numbers, parse_pairs
from shuffledp.common.protocols import Kind
from shuffledp.common.task.domain_spec import GROUP_SEPARATOR, AttributeSpec, EdgesSpec, Spacing
from shuffledp.common.task.draft import NumberDraft, OpenDraft, PairDraft, TableDraft, TextDraft
from shuffledp.common.task.specs import MAX_BOUND, MAX_KEYS, check_int_range
from shuffledp.deploy.datasets.attributes import attributes_of, cell_counts, draw_numbers
from shuffledp.deploy.datasets.names import COVID_US_STATES, IPUMS_1940_CITY
from shuffledp.deploy.datasets.sources import Dataset, load
from shuffledp.deploy.tasks import drafts, value_parser
from shuffledp.user_agent.contribution import checked_text, open_text

MAX_SAMPLE: Final = 1_000_000
"""Largest synthetic population, and largest population from a file."""
_DEMO_BUCKETS: Final = 64
_WIDE: Final = 100
"""Ratio of the ends of a range from which its buckets have equal ratios."""
_MAX_CANDIDATES: Final = 1000
_PATIENTS: Final = 100_000
"""Default number of people drawn from the 31,670,031 COVID-19 cases."""
_ASKED: Final = 20_000
"""Default number of other people."""
_OPEN_BYTES: Final = 8
"""Bytes of a text or code that no list holds."""
_NARROW: Final = 1e-5
"""Width of a range, relative to its ends, up to which it is widened."""
_TINY: Final = 1e-12
"""Width of a range up to which it is widened, and size up to which a number counts as 0 there."""
_MOST: Final = math.nextafter(MAX_BOUND, 0.0)
Span = tuple[float, float]
_ABSENT: Final = (
    *("Alberta", "British Columbia", "Manitoba", "New Brunswick", "Newfoundland and Labrador"),
    *("Nova Scotia", "Ontario", "Prince Edward Island", "Quebec", "Saskatchewan"),
)
"""Candidates that no person has as a value."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplePeople:
    """A population's values, its task draft, and its true shares or means."""

    kind: Kind
    title: str
    """A sentence that explains the values."""
    values: list[Value]
    draft: Mapping[str, Any]
    """Fields of the task draft, such as protocol, labels and the kind's table; may be empty."""
    truth: Vector
    """True shares of items, candidates or owners, or true means of numbers."""
    true_means: Vector | None = None
    """For pairs, the true mean of each key among its owners."""
    candidates: tuple[str, ...] = ()
    """For texts, the candidates, whose shares are `truth`."""


def sample_people(kind: Kind, n_users: int | None, seed: int | None) -> SamplePeople:
    """Draw n_users people; by default 100,000 for items and texts, 20,000 for other kinds."""
    return _PEOPLE[kind].sample(kind, n_users, np.random.default_rng(seed))


_States = tuple[str, tuple[str, ...], dict[str, Any]]
"""A clause on the form of the values, their texts, and the draft."""


def _states(data: Dataset) -> _States:
    draft = {"domain_size": data.domain_size, "labels": data.labels, **drafts.DEMO_PARAMETERS}
    draft |= {"title": "A US state", "prompt": "Choose a US state."}
    return "until 18 April 2021", (), draft


def _states_as_texts(data: Dataset) -> _States:
    # One-time RAPPOR of local epsilon 4, as in the demo for items.
    texts = TextDraft(
        bits=128, hashes=1, cohorts=8, permanent=0.0, unset=0.018, set=0.5, most_bytes=64
    )
    form = "as a text; ten Canadian provinces without cases are candidates too"
    return form, (*data.labels, *_ABSENT), {"protocol": "rappor", "texts": texts}


def _states_that_no_list_holds(data: Dataset) -> _States:
    names = tuple(label.encode()[:_OPEN_BYTES].decode().strip() for label in data.labels)
    form = f"cut to {_OPEN_BYTES} letters; no list of states is given"
    return form, names, {"protocol": "discover", "local_epsilon": 4.0}


def _patients(
    states: Callable[[Dataset], _States], kind: Kind, n_users: int | None, rng: np.random.Generator
) -> SamplePeople:
    data, people = load(COVID_US_STATES), _PATIENTS if n_users is None else n_users
    items = data.draw(people, rng)
    shares = np.bincount(items, minlength=data.domain_size) / people
    form, names, draft = states(data)
    return SamplePeople(
        kind=kind,
        title=f"A value is the US state of a confirmed case of COVID-19, {form}.",
        values=[names[item] if names else item for item in items.tolist()],
        draft=draft,
        candidates=names,
        truth=np.append(shares, np.zeros(max(0, len(names) - len(shares)))),
    )


def numbers_of(
    data: Dataset | None, buckets: int, span: Span | None = None
) -> tuple[Vector, Dataset, EdgesSpec]:
    """
    Return a data set's numbers, by item, and buckets of them; by default sizes of people's cities.

    Buckets have equal ratios if all numbers are above 0 and some 100 times as large as others.
    `span` is the range, by default that of the numbers. Raises TaskError if a label is no number,
    or out of the range.
    """
    if data is None:
        title = "Size of a person's city, 1940 census (IPUMS)"
        data = dataclasses.replace(load(IPUMS_1940_CITY), title=title)
        numbers = np.multiply(100.0, data.counts)  # a sample of 1 %
        (low, high), unit = (100.0, 1e7), "inhabitants"
    else:
        parsed = data.parsed(_number_reader(data, span))
        numbers = np.array(parsed if data.labels else np.arange(data.domain_size), dtype=np.float64)
        (low, high), unit = span or _range(numbers.tolist()), ""
    spacing: Spacing = "logarithmic" if 0 < _WIDE * low < high else "equal"
    edges = EdgesSpec(spacing=spacing, low=low, high=high, buckets=buckets, unit=unit)
    return numbers, data, edges


def _residents(_kind: Kind, n_users: int | None, rng: np.random.Generator) -> SamplePeople:
    people = _ASKED if n_users is None else n_users
    numbers, data, edges = numbers_of(None, _DEMO_BUCKETS)
    values = numbers[data.draw(people, rng)]
    shares, _ = np.histogram(values, edges.edges)
    return SamplePeople(
        kind="ordered",
        title="A value is the number of people in a person's city, by the 1940 census.",
        values=values.tolist(),
        draft={
            "title": "The size of a city",
            "prompt": "How many people live in your city?",
            # Not `hierarchy`: devices with default settings refuse reports without local noise.
            "protocol": "mixdump",
            "local_epsilon": 4.0,
            "dummies_per_user": 1.0,
            "edges": edges,
        },
        truth=shares / people,
    )


def _respondents(kind: Kind, n_users: int | None, rng: np.random.Generator) -> SamplePeople:
    people = _ASKED if n_users is None else n_users
    check_int_range("users", people, 1, MAX_SAMPLE)
    title, draft, answer = _QUESTIONS[kind]
    size = draft.get("domain_size", 1)
    values = answer(people, size, rng)
    return SamplePeople(
        kind=kind,
        title=f"A value is {title}. The data is synthetic.",
        values=values,
        draft=draft,
        **_truth(values, np.ones(people, dtype=np.int64), size),
    )


def _sleepers(n_users: int, _size: int, rng: np.random.Generator) -> list[Any]:
    return list(np.clip(rng.normal(7.1, 1.3, n_users), 0, 24).round(1).tolist())


def _guests(n_users: int, size: int, rng: np.random.Generator) -> list[Any]:
    """Draw marks around 1.8 for the first question to 4.4 for the last, with deviation .9."""
    marks = rng.normal(np.linspace(1.8, 4.4, size), 0.9, (n_users, size))
    return [tuple(row) for row in np.clip(marks, 1.0, 5.0).round().tolist()]


def _viewers(n_users: int, size: int, rng: np.random.Generator) -> list[Any]:
    seen = rng.random((n_users, size)) < np.geomspace(0.7, 0.1, size)
    stars = np.clip(rng.normal(np.linspace(4.3, 1.8, size), 0.8, (n_users, size)), 0, 5).round(1)
    return [
        {int(film): float(row[film]) for film in np.flatnonzero(here)}
        for here, row in zip(seen, stars, strict=True)
    ]


_Answer = Callable[[int, int, np.random.Generator], list[Any]]
"""Draws values, given the number of people and the number of numbers or keys."""
_QUESTIONS: Final[Mapping[Kind, tuple[str, Mapping[str, Any], _Answer]]] = {
    "mean": (
        "the hours that a person slept, 0 to 24",
        {
            "protocol": "piecewise",
            "local_epsilon": 2.0,
            "labels": ("hours of sleep",),
            "numbers": NumberDraft(low=0.0, high=24.0),
        },
        _sleepers,
    ),
    "vector": (
        "a guest's marks from 1 to 5 on eight questions",
        {
            "protocol": "multi-hm",
            "domain_size": 8,
            "local_epsilon": 4.0,
            "labels": (
                *("food", "staff", "rooms", "price"),
                *("noise", "light", "opening hours", "website"),
            ),
            "numbers": NumberDraft(low=1.0, high=5.0),
        },
        _guests,
    ),
    "key-value": (
        "the films (of twelve) that a person saw, with 0 to 5 stars for each",
        {
            "protocol": "priv-kv",
            "domain_size": 12,
            "local_epsilon": 4.0,
            "labels": tuple(f"film {letter}" for letter in "ABCDEFGHIJKL"),
            "pairs": PairDraft(low=0.0, high=5.0),
        },
        _viewers,
    ),
}
_CUSTOMERS: Final = (
    AttributeSpec(
        name="age",
        edges=EdgesSpec(spacing="given", given=(18.0, 30.0, 40.0, 50.0, 65.0, 100.0), unit="years"),
    ),
    AttributeSpec(name="region", labels=("north", "east", "south", "west")),
    AttributeSpec(name="device", labels=("phone", "computer", "tablet")),
    AttributeSpec(name="satisfied", labels=("yes", "mostly", "hardly", "no")),
)


def _customers(_kind: Kind, n_users: int | None, rng: np.random.Generator) -> SamplePeople:
    people = _ASKED if n_users is None else n_users
    title = "A value is a customer's age, region, device and opinion"
    texts = {"title": "Customers", "prompt": "Your age, region and device, and are you satisfied?"}
    return with_attributes(_CUSTOMERS, people, rng, title, {**drafts.DEMO_TABLES, **texts})


def with_attributes(
    attributes: Sequence[AttributeSpec],
    n_users: int,
    rng: np.random.Generator,
    title: str,
    draft: Mapping[str, Any],
) -> SamplePeople:
    """Draw people whose attributes have a common cause; raise TaskError for too many."""
    check_int_range("users", n_users, 1, MAX_SAMPLE)
    numbers = draw_numbers([each.size for each in attributes], n_users, rng)
    tables = TableDraft(attributes=tuple(attributes))
    return SamplePeople(
        kind="table",
        title=f"{title}. The data is synthetic.",
        values=[value_parser.value_of_attributes(attributes, each) for each in numbers.tolist()],
        draft={**draft, "tables": tables},
        truth=cell_counts(numbers, Tables.specify(tables)) / n_users,
    )


def people_of(
    data: Dataset, kind: Kind, n_users: int | None, seed: int | None, span: Span | None = None
) -> SamplePeople:
    """
    Draw people, by default all, of a data set whose labels have the format of `contribute`.

    Ranges of numbers are `span` or the observed ones; candidates are the most frequent texts. For
    open dictionaries, items without labels are random 64-bit codes, and long texts are hashed.
    Raises TaskError if a label or n_users does not fit.
    """
    users, people = data.n_users if n_users is None else n_users, _PEOPLE[kind]
    coded = people.may_be_codes and not data.labels
    if coded:
        drawn = np.random.default_rng(seed).integers(0, 2**64, data.domain_size, dtype=np.uint64)
        data = dataclasses.replace(data, labels=tuple(map(str, drawn.tolist())))
    if not data.labels or users > MAX_SAMPLE:
        raise TaskError(
            f"{users:,} people with {kind} data cannot be drawn from {data.name}; it must be a "
            f"file of values, and users must be at most {MAX_SAMPLE:,}"
        )
    parsed: list[Any] = data.parsed(people.reader(data, span))
    counts = data.sample_counts(users, np.random.default_rng(seed))
    kept = np.flatnonzero(counts)
    drawn_values = _Drawn([parsed[item] for item in kept], counts[kept], span, coded, data.column)
    form, facts = people.facts(drawn_values)
    values = [value for value, many in zip(*drawn_values[:2], strict=True) for _ in range(many)]
    return SamplePeople(kind=kind, title=data.title + form, values=values, **facts)


class _Drawn(NamedTuple):
    """Different values, and how many people have each."""

    values: list[Any]
    counts: Counts
    span: Span | None
    coded: bool
    column: str


def _text_facts(drawn: _Drawn) -> tuple[str, dict[str, Any]]:
    order = np.argsort(-drawn.counts, kind="stable")[:_MAX_CANDIDATES]
    names = tuple(drawn.values[at] for at in order)
    shares = drawn.counts[order] / drawn.counts.sum()
    return "", {"draft": {}, "truth": shares, "candidates": names}


def _open_facts(drawn: _Drawn) -> tuple[str, dict[str, Any]]:
    long = max(len(text.encode()) for text in drawn.values) > _OPEN_BYTES
    encoding = "code" if drawn.coded else "hash" if long else "text"
    facts = _text_facts(drawn)[1] | {"draft": {"open": OpenDraft(encoding=encoding)}}
    return f", each value sent as a {encoding}", facts


def _number_facts(drawn: _Drawn) -> tuple[str, dict[str, Any]]:
    numbers, size = np.ravel(drawn.values).tolist(), np.size(drawn.values[0])
    return _ranged(drawn, numbers, size, "numbers", NumberDraft)


def _pair_facts(drawn: _Drawn) -> tuple[str, dict[str, Any]]:
    size = 1 + max((key for value in drawn.values for key in value), default=0)
    numbers = [number for value in drawn.values for number in value.values()]
    return _ranged(drawn, numbers, size, "pairs", PairDraft)


def _attribute_facts(drawn: _Drawn) -> tuple[str, dict[str, Any]]:
    attributes, numbers = attributes_of(drawn.values, drawn.column.split(","))
    tables = TableDraft(attributes=attributes)
    counts = cell_counts(numbers, Tables.specify(tables), drawn.counts)
    facts = {"draft": {"tables": tables}, "truth": counts / drawn.counts.sum()}
    return f", columns {drawn.column}", facts


def _ranged(
    drawn: _Drawn, numbers: list[float], size: int, table: str, form: Callable[..., Any]
) -> tuple[str, dict[str, Any]]:
    low, high = drawn.span or _range(numbers)
    draft = {"domain_size": size, table: form(low=low, high=high)}
    facts = {"draft": draft, **_truth(drawn.values, drawn.counts, size)}
    return f", range {low:,.15g} to {high:,.15g}", facts


def _in_span(number: float, span: Span | None) -> float:
    low, high = span or (-_MOST, _MOST)
    if not low <= number <= high:
        raise ValueRangeError(f"a number must lie between {low:,} and {high:,}")
    return number


def _vector(text: str, *, size: int, rule: str, span: Span | None) -> tuple[float, ...]:
    numbers = tuple(_in_span(number, span) for number in parse_numbers(text, rule))
    if len(numbers) != size:
        raise ValueRangeError(rule)
    return numbers


def _number_reader(_data: Dataset, span: Span | None) -> Callable[[str], float]:
    rule = "a value is a number, such as 36.6"
    return lambda text: _vector(text, size=1, rule=rule, span=span)[0]


def _vector_reader(data: Dataset, span: Span | None) -> Callable[[str], tuple[float, ...]]:
    size = 1 + data.labels[0 if data.rows is None else data.rows.argmin()].count(",")
    rule = f"a value has as many numbers as the first, {size}, with commas between"
    return partial(_vector, size=size, rule=rule, span=span)


def _pair_reader(_data: Dataset, span: Span | None) -> Callable[[str], dict[int, float]]:
    return lambda text: {
        key: _in_span(value, span) for key, value in parse_pairs(text, {}, MAX_KEYS).items()
    }


def _parts_reader(data: Dataset, _span: Span | None) -> Callable[[str], str]:
    number = len(data.column.split(","))
    rule = f"a value has {number} parts, of which none contains {GROUP_SEPARATOR.strip()!r}"

    def read(text: str) -> str:
        if len(text.split(GROUP_SEPARATOR)) != number:
            raise ValueRangeError(rule)
        return text

    return read


def _truth(values: list[Any], counts: Counts, size: int) -> dict[str, Any]:
    """Return the true means of numbers, or shares and means of pairs, for values and counts."""
    if not isinstance(values[0], dict):
        table = np.array(values, dtype=np.float64).reshape(len(values), size)
        return {"truth": counts @ table / counts.sum()}
    owners, sums = np.zeros(size), np.zeros(size)
    for value, many in zip(values, counts.tolist(), strict=True):
        for key, number in value.items():
            owners[key] += many
            sums[key] += many * number
    return {"truth": owners / counts.sum(), "true_means": sums / np.maximum(owners, 1)}


def _range(numbers: list[float]) -> Span:
    """Return the least and the largest number or, around almost equal numbers, a wider range."""
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    size = max(-low, high)
    if high - low > max(_NARROW * size, _TINY):
        return low, high
    size = size if size > _TINY else 1.0
    return max(low - size, -_MOST), min(high + size, _MOST)


class _KindPeople(NamedTuple):
    """How people with values of one kind are drawn, or read from a data set."""

    sample: Callable[[Kind, int | None, np.random.Generator], SamplePeople]
    reader: Callable[[Dataset, Span | None], Callable[[str], Any]] = _number_reader
    """Returns a function that reads labels, and refuses what devices refuse by default."""
    facts: Callable[[_Drawn], tuple[str, dict[str, Any]]] = _number_facts
    """Returns a clause on the form of the values, and fields of the people."""
    may_be_codes: bool = False


_PEOPLE: Final[Mapping[Kind, _KindPeople]] = {
    "categorical": _KindPeople(partial(_patients, _states)),
    "ordered": _KindPeople(_residents),
    "string": _KindPeople(
        partial(_patients, _states_as_texts),
        lambda *_: partial(checked_text, most=TextDraft().most_bytes),
        _text_facts,
    ),
    "open": _KindPeople(
        partial(_patients, _states_that_no_list_holds),
        lambda *_: partial(open_text, most=OpenDraft().most_bytes),
        _open_facts,
        may_be_codes=True,
    ),
    "mean": _KindPeople(_respondents),
    "vector": _KindPeople(_respondents, _vector_reader),
    "key-value": _KindPeople(_respondents, _pair_reader, _pair_facts),
    "table": _KindPeople(_customers, _parts_reader, _attribute_facts),
}
