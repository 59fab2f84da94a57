"""Edges of ordered buckets, sizes of hierarchies, and breakdowns."""

import dataclasses
import math
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.task.domain_spec import BreakdownSpec, EdgesSpec
from shuffledp.common.task.specs import hierarchy_sizes
from shuffledp.common.task.task import Task
from tests.support.protocol_tasks import protocol_task
from tests.support.tables import table

_EQUAL = EdgesSpec(low=0.0, high=10.0, buckets=5, unit="ms")
_LOGARITHMIC = EdgesSpec(spacing="logarithmic", low=0.1, high=1000.0, buckets=4)
_GIVEN = EdgesSpec(spacing="given", given=(-1.0, 0.5, 0.75, 18.0))
_COUNTRIES = BreakdownSpec(attribute="country", groups=("DE", "FR"))


@pytest.mark.parametrize(
    ("spec", "edges"),
    [
        (_EQUAL, [0, 2, 4, 6, 8, 10]),
        (_LOGARITHMIC, [0.1, 1, 10, 100, 1000]),
        (_GIVEN, [-1, 0.5, 0.75, 18]),
    ],
)
def test_edges_are_spaced_as_stated(spec: EdgesSpec, edges: list[float]) -> None:
    """Of equal width, of equal ratio, or given; the ends are exact."""
    assert edges == pytest.approx(spec.edges.tolist())
    assert [edges[0], edges[-1]] == spec.edges[[0, -1]].tolist()
    assert len(edges) - 1 == spec.size


@pytest.mark.parametrize(("high", "buckets"), [(1, 10), (10, 100), (45, 150), (1e9, 1000)])
def test_decimal_numbers_begin_their_bucket(high: float, buckets: int) -> None:
    """Though 3 · .1 is more than .3: .3 lies in the bucket from .3 on."""
    spec, last = EdgesSpec(low=0.0, high=float(high), buckets=buckets), buckets - 1
    numbers = [float(f"{place * high / buckets:.12g}") for place in range(buckets)]
    powers = EdgesSpec(spacing="logarithmic", low=1e-5, high=1e5, buckets=10)

    assert list(range(buckets)) == [spec.bucket_of(number) for number in numbers]
    assert last == EdgesSpec(low=-float(high), high=0.0, buckets=buckets).bucket_of(0.0)
    assert [float(f"1e{power}") for power in range(-5, 6)] == powers.edges.tolist()


@pytest.mark.parametrize("spacing", ["equal", "logarithmic"])
def test_edges_that_floats_hardly_resolve_are_not_rounded(spacing: Any) -> None:
    """They ascend as long as floats do."""
    narrow = EdgesSpec(spacing=spacing, low=1e9, high=1e9 + 2000.0, buckets=2**20)
    tiny = EdgesSpec(spacing="logarithmic", low=1e-200, high=1.0, buckets=5)

    assert (np.diff(narrow.edges) > 0).all()
    assert [1e-200, 1e-160, 1e-120] == pytest.approx(tiny.edges[:3].tolist(), rel=1e-9)


@pytest.mark.parametrize("spec", [_EQUAL, _LOGARITHMIC, _GIVEN])
def test_a_bucket_holds_its_lower_edge_and_the_last_one_both(spec: EdgesSpec) -> None:
    """A number just below an edge is in the bucket before."""
    edges = spec.edges

    assert [*range(spec.size), spec.size - 1] == [spec.bucket_of(edge) for edge in edges.tolist()]
    below = [spec.bucket_of(math.nextafter(edge, -math.inf)) for edge in edges[1:].tolist()]
    assert list(range(spec.size)) == below


@pytest.mark.parametrize("number", [-0.001, 10.001])
def test_a_number_outside_is_refused_without_being_quoted(number: float) -> None:
    """The message states the range and its unit."""
    with pytest.raises(ValueRangeError) as refused:
        _EQUAL.bucket_of(number)

    assert "a number must lie between 0 and 10 ms" == str(refused.value)


@pytest.mark.parametrize(("number", "bucket"), [(-5.0, 0), (10.5, 4), (1e300, 4), (3.0, 1)])
def test_numbers_outside_may_be_clipped(number: float, bucket: int) -> None:
    """To the first or the last bucket; infinite numbers and NaN never are."""
    clipping = EdgesSpec(low=0.0, high=10.0, buckets=5, outside="clip")

    assert bucket == clipping.bucket_of(number)
    for figure in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueRangeError, match="a number must be finite"):
            clipping.bucket_of(figure)


@table(
    ("fields", "rule"),
    [
        ({"buckets": 1}, "buckets is 1"),
        ({"high": 0.0}, "high"),
        ({"high": math.inf}, "high"),
        ({"low": math.nan}, "low"),
        ({"spacing": "logarithmic"}, "for logarithmic buckets it must be above 0.0"),
        ({"spacing": "even"}, "spacing"),
        ({"outside": "drop"}, "outside"),
        ({"unit": "\x00"}, "unit must be printable"),
        ({"unit": "a\u202eb"}, "unit must be printable"),
        ({"unit": 33 * "µ"}, "unit has 33 characters; it may have at most 32"),
        ({"given": (1.0, 2.0, 3.0)}, 'spacing must then be "given"'),
        ({"spacing": "given", "given": (1.0, 2.0)}, "all must|number of given edges is 2"),
    ],
)
def test_bad_edges_are_refused(fields: dict[str, Any], rule: str) -> None:
    """The message names the field."""
    with pytest.raises(TaskError, match=rule):
        EdgesSpec(**{"low": 0.0, "high": 10.0, "buckets": 5, **fields})


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ((1.0, 2.0, 2.0), "edge 2 is 2.0 and edge 3 is 2.0: edges must ascend"),
        ((3.0, 2.0, 4.0), "edge 1 is 3.0 and edge 2 is 2.0"),
        ((1.0, math.nan, 3.0), "an edge is nan"),
        ((-1.0, -0.0, 3.0), "an edge is -0.0; write 0.0"),
    ],
)
def test_given_edges_ascend(given: tuple[float, ...], rule: str) -> None:
    """And are finite, and zero has one form."""
    with pytest.raises(TaskError, match=rule):
        EdgesSpec(spacing="given", given=given)


@pytest.mark.parametrize(
    ("buckets", "fan_out", "groups", "sizes"),
    [
        (30, 4, 1, (2, 8, 30)),
        (65_536, 16, 1, (16, 256, 4096, 65_536)),
        (7, 3, 2, (6, 14)),
        (5, 9, 3, (15,)),
    ],
)
def test_levels_join_neighbours_of_a_group(
    buckets: int, fan_out: int, groups: int, sizes: tuple[int, ...]
) -> None:
    """Until a group has at most fan_out nodes."""
    assert sizes == hierarchy_sizes(buckets, fan_out, groups)


@table(
    "groups",
    [
        ("DE",),
        ("DE", "DE"),
        ("DE", "F / R"),
        ("DE", "F /"),
        ("DE", " "),
        ("DE", ""),
        ("DE", "FR "),
        ("DE", "e\u0301"),
    ],
)
def test_bad_groups_are_refused(groups: tuple[str, ...]) -> None:
    """A group has a name of its own, without the separator."""
    with pytest.raises(TaskError):
        BreakdownSpec(attribute="country", groups=groups)


def _broken_down(**changes: Any) -> Task:
    fields = {"domain_size": 1, "labels": ("flu", "cold", "none"), "breakdown": _COUNTRIES}
    return protocol_task(changes.pop("protocol", "sh"), **fields | changes)


def test_a_breakdown_makes_an_item_of_each_pair() -> None:
    """Labels begin with the group; edges have none; both survive the task's bytes."""
    labelled = _broken_down()
    ordered = _broken_down(labels=(), edges=_EQUAL)
    first = [f"DE / {label}" for label in ("flu", "cold", "none")]

    assert (6, first) == (labelled.domain_size, list(labelled.labels[:3]))
    assert (10, "ordered") == (ordered.domain_size, ordered.kind)
    for task in (labelled, ordered):
        assert task == Task.from_bytes(task.to_bytes())


_OLH: Final = {"protocol": "ldp-olh", "buckets": 1453}


def _groups(number: int) -> BreakdownSpec:
    return BreakdownSpec(attribute="c", groups=tuple(map(str, range(number))))


@table(
    ("fields", "rule"),
    [
        ({"domain_size": 7, "labels": (), "edges": _EQUAL}, "is 7 and the draft states 5"),
        ({"edges": _EQUAL, "labels": tuple("abcde")}, "5 labels and a table .edges.; leave labels"),
        ({"protocol": "ldp-sw", "labels": (), "edges": _EQUAL}, "ldp-sw smooths across groups"),
        ({"n_min": 40, "target_size": 30}, "n_min is 40 and target_size is 30"),
        ({"labels": ()}, "at least 2 items, of each group: set domain_size, labels"),
        (
            {"labels": (), "domain_size": 2**23, "breakdown": _groups(3)},
            "domain_size times 3 groups is 25165824; it must lie between 4 and 16777216",
        ),
        ({"labels": ("flu", " cold")}, "the label of item 1 begins or ends with whitespace"),
        (
            {"labels": (), "domain_size": 2**14, "breakdown": _groups(128), **_OLH},
            "2 digits in base 1453 give 2111209 seeds; with 128 groups at most 2097152 are",
        ),
    ],
)
def test_a_domain_that_does_not_fit_is_refused(fields: dict[str, Any], rule: str) -> None:
    """By the analyzer, before the task exists."""
    with pytest.raises(TaskError, match=rule):
        _broken_down(**fields)


def test_groups_have_the_same_labels_in_one_order() -> None:
    """Otherwise results would name a group's values by another's labels."""
    task = _broken_down()
    swapped = (*task.labels[:4], task.labels[5], task.labels[4])
    with pytest.raises(
        TaskError, match="label of item 4 must name its group, FR, and then the same"
    ):
        dataclasses.replace(task, labels=swapped)


def test_edges_survive_a_task_s_bytes() -> None:
    """The bytes are ASCII whatever the unit."""
    spec = dataclasses.replace(_LOGARITHMIC, unit="°C")
    published = _broken_down(labels=(), edges=spec, breakdown=None).to_bytes()
    edges = Task.from_bytes(published).edges

    assert published.isascii()
    assert spec == edges
    assert np.array_equal(_LOGARITHMIC.edges, edges.edges)


def test_a_breakdown_names_its_attribute() -> None:
    """An empty name would leave results without a heading."""
    with pytest.raises(TaskError, match="attribute is empty"):
        BreakdownSpec(attribute="", groups=("DE", "FR"))
