"""The page of a result of any other kind than items."""

import dataclasses
import re
from html import unescape
from typing import Any

import numpy as np
import pytest

from common.errors import WireError
from common.messages.estimate import BitTable, KeyValues, Means
from common.protocols import Kind
from common.task.draft import PairDraft, TextDraft
from common.task_digest import TaskDigest
from deploy.datasets.sample_people import SamplePeople
from deploy.pages.collection_story import story
from deploy.pages.estimates_page import estimates_page
from deploy.pages.parameters import parameter_groups
from deploy.results.estimate_table import EstimateTable, Line
from deploy.results.result_tables import read_out
from deploy.results.truth_comparison import compare
from tests.support.kind_results import (
    CANDIDATES,
    PROTOCOL_OF,
    KindCollected,
    kind_collected,
    result_of,
)
from tests.support.kind_tasks import OF_OTHER_KINDS, OTHER_KINDS, kind_task
from tests.support.result_pages import collected

_HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}"


def _page(kind: Kind, labels: tuple[str, ...] = ()) -> str:
    found = kind_collected(kind, labels)
    return _page_of(found, CANDIDATES if kind == "string" else ())


def _page_of(found: KindCollected, candidates: tuple[str, ...] = ()) -> str:
    report = read_out(found.result, found.task, candidates, most=99)
    return estimates_page(
        found.result,
        found.task,
        report.tables,
        notes=report.notes,
        size=report.size,
        version="1.2.3",
    )


def _labels(kind: Kind) -> tuple[str, ...]:
    size = kind_task(PROTOCOL_OF[kind]).domain_size
    return (_HOSTILE, *(f"label {number}" for number in range(1, size)))


def _line(**changes: float) -> Line:
    return Line(**{"name": "a", "figure": 1.0, "low": 0.0, "high": 2.0, **changes})  # type: ignore[arg-type]  # floats


def _drawn(*lines: Line) -> str:
    """Draw lines on the page of some result."""
    table = EstimateTable(
        title="t", figure="mean", name="n", interval="i", more=(), lines=lines, size=9, notes=()
    )
    found = kind_collected("mean")
    return estimates_page(found.result, found.task, [table], size=9, version="1")


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_every_estimate_is_on_the_page(kind: Kind) -> None:
    """With its interval, under its name, as the table has it."""
    found = kind_collected(kind)
    candidates = CANDIDATES if kind == "string" else ()
    page = unescape(_page(kind))
    for table in read_out(found.result, found.task, candidates, most=99).tables:
        assert table.title in page
        assert all(note in page for note in table.notes)
        for line in table.lines:
            assert f">{line.name}</th>" in page
            assert f">{table.written(line.figure)}</td>" in page
            assert f">{table.written(line.low)} … {table.written(line.high)}</td>" in page


@pytest.mark.parametrize("kind", ["mean", "vector", "key-value"])
def test_a_hostile_label_is_text(kind: Kind) -> None:
    """Neither markup nor a template; it is shown as it is."""
    page = _page(kind, _labels(kind))

    assert "<script>alert" not in page
    assert f">{_HOSTILE}</th>" in unescape(page)
    assert ">49<" not in page


def test_a_hostile_candidate_is_text() -> None:
    """Whoever wrote the file."""
    page = _page_of(kind_collected("string"), (_HOSTILE, "Ohio"))

    assert "<script>alert" not in page
    assert f">{_HOSTILE}</th>" in unescape(page)


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_page_shows_itself_without_script_and_network(kind: Kind) -> None:
    """Nothing is run, and nothing is fetched."""
    page = _page(kind)

    assert "<script" not in page
    assert not re.search(r"""(src|href)\s*=\s*["'](https?:)?//""", page)
    assert not re.search(r"\son[a-z]+\s*=", page)


@pytest.mark.parametrize("protocol", OF_OTHER_KINDS)
def test_the_page_of_every_protocol_says_how_it_collects(protocol: str) -> None:
    """In words, with its parameters, and the digest of the task."""
    task = kind_task(protocol)
    estimate = kind_collected(task.kind).result.estimate
    if isinstance(estimate, Means):
        estimate = dataclasses.replace(estimate, unbiased=protocol != "multi-rphm")
    found = KindCollected(result=result_of(task, estimate=estimate), task=task)
    page = _page_of(found, CANDIDATES if task.kind == "string" else ())

    assert f"by {task.mechanism.name}." not in page
    assert found.result.task_digest.hex() in page
    for field in dataclasses.fields(task.mechanism):
        assert field.name in page, field.name


@pytest.mark.parametrize(
    ("kind", "labels", "shown", "hidden"),
    [
        ("vector", (), "Numbers of each person", "Values that can"),
        ("key-value", (), "Keys that each person may own", "Values that can"),
        ("string", (), "Cohorts, each with hashes", "that can be answered"),
        ("string", ("a", "b"), "Texts that can be answered", "Values that can"),
    ],
)
def test_what_a_task_counts_is_called_by_its_name(
    kind: Kind, labels: tuple[str, ...], shown: str, hidden: str
) -> None:
    """Only items are values that can be answered; of filters any text is one."""
    texts = TextDraft() if labels else TextDraft(bits=32, cohorts=8)
    changes = {"labels": labels, "texts": texts} if kind == "string" else {}
    task = kind_task(PROTOCOL_OF[kind], **changes)
    told = [row.meaning for _, rows in parameter_groups(task) for row in rows]

    assert any(shown in meaning for meaning in told)
    assert not any(hidden in meaning for meaning in told)


def test_a_line_of_noise_is_not_called_an_interval() -> None:
    """Under a picture stands what its lines are: the column's heading."""
    found = kind_collected("vector")
    assert isinstance(found.result.estimate, Means)
    projected = kind_task("multi-rphm")
    biased = dataclasses.replace(found.result.estimate, unbiased=False)
    noisy = KindCollected(result=result_of(projected, estimate=biased), task=projected)

    assert "“95% interval”" in unescape(_page_of(found))
    assert "“± noise alone”" in unescape(_page_of(noisy))
    assert "“95% interval”" not in unescape(_page_of(noisy))


def test_the_page_of_a_later_iteration_tells_nothing_of_owners() -> None:
    """Neither in its story nor in its title, and no share is there."""
    pairs = PairDraft(low=0.0, high=5.0, key_share=0.0)
    task, estimate = kind_task("priv-kv", pairs=pairs), kind_collected("key-value").result.estimate
    assert isinstance(estimate, KeyValues)
    later = result_of(task, estimate=dataclasses.replace(estimate, owners=None))
    page = unescape(_page_of(KindCollected(result=later, task=task)))

    assert "Means of 6 keys" in page
    assert "the mean of what was said of each key, fakes included." in page
    assert "how many people own" not in page
    assert "share of users" not in page


@pytest.mark.parametrize(
    ("labels", "chances", "said"),
    [
        (
            (),
            {},
            (
                "set bits of a filter for its text, replaced some by chance, and reported each "
                "bit with chance noise (RAPPOR)."
            ),
        ),
        (
            (),
            {"question": "state"},
            (
                "set bits of a filter for its text, replaced some by chance for good, and reported "
                "each bit with chance noise (RAPPOR)."
            ),
        ),
        (
            (),
            {"question": "state", "unset": 0.0, "set": 1.0},
            (
                "set bits of a filter for its text, replaced some by chance for good, and reported "
                "the bits (one-time RAPPOR)."
            ),
        ),
        (
            (),
            {"unset": 0.0, "set": 1.0},
            (
                "set bits of a filter for its text, replaced some by chance, and reported the bits "
                "(one-time RAPPOR)."
            ),
        ),
        (
            (),
            {"permanent": 0.0},
            "set bits of a filter for its text, and reported each bit with chance noise (RAPPOR).",
        ),
        (
            ("a", "b", "c"),
            {},
            (
                "took a bit for each label, set that of its text, replaced some by chance, and "
                "reported each bit with chance noise (basic RAPPOR)."
            ),
        ),
        (
            ("a", "b", "c"),
            {"unset": 0.0, "set": 1.0},
            (
                "took a bit for each label, set that of its text, replaced some by chance, and "
                "reported the bits (basic one-time RAPPOR)."
            ),
        ),
    ],
)
def test_each_variant_of_rappor_is_told_as_what_it_does(
    labels: tuple[str, ...], chances: dict[str, Any], said: str
) -> None:
    """A filter or a label's bit; noise once, twice or kept; without the task what holds of all."""
    size = {} if labels else {"bits": 32, "cohorts": 8}
    cohorts = 1 if labels else 64
    texts = TextDraft(**{"cohorts": cohorts, **size, **chances})
    task = kind_task("rappor", labels=labels, texts=texts, population="staff")
    estimate = kind_collected("string").result.estimate  # of another task: not what is told
    result = result_of(task, estimate=estimate)

    assert f"Each person's device {said}" in story(result, task)
    assert bool(labels) == ("how often each label occurs" in story(result, task))
    assert "filter" not in story(result, None)
    assert "reported all bits with chance noise (RAPPOR)" in story(result, None)


def test_texts_without_candidates_have_a_page_that_says_what_to_do() -> None:
    """And no table."""
    page = _page_of(kind_collected("string"))

    assert "--candidates" in page
    assert '<table class="estimates">' not in page


def test_a_page_can_be_made_without_the_task() -> None:
    """Then it says that the parameters are missing."""
    found = kind_collected("vector")
    tables = read_out(found.result, found.task, (), most=9).tables

    assert "was not at hand" in estimates_page(found.result, None, tables, size=5, version="1")


def test_a_demo_s_page_shows_the_truth() -> None:
    """In a column, and on the axis; no other page does."""
    found = kind_collected("vector")
    people = SamplePeople(
        kind="vector", title="", values=[], draft={}, truth=np.array([1.0, 2.0, 3.0, 4.0, 4.99])
    )
    compared = compare(found.task, found.result.estimate, people)
    page = estimates_page(found.result, found.task, compared.tables, size=5, version="1")

    assert "4.99" in page
    assert '<line class="truth"' in page
    assert '<line class="truth"' not in _page("vector")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"task_digest": TaskDigest(bytes(32))}, "the task is"),
        ({"protocol": "harmony"}, "the task's protocol is multi-hm, and the result says harmony"),
        ({"mechanism": "harmony"}, "the task's mechanism is multi-hm"),
        ({"buckets": 7}, "number of buckets is 0, and the result says 7"),
        ({"local_epsilon": 0.1}, "the task's local_epsilon is"),
        ({"n_users": 999, "n_reports": 999}, "999 users; the task is released from 1000 on"),
        ({"n_reports": 4001}, "4001 reports; 4000 users of this task"),
    ],
)
def test_a_result_that_does_not_fit_its_task_is_not_shown(
    change: dict[str, object], rule: str
) -> None:
    """Its names and its promises would be wrong."""
    found = kind_collected("vector")
    result = dataclasses.replace(found.result, **change)  # type: ignore[arg-type]  # of its fields
    with pytest.raises(WireError, match=rule):
        estimates_page(result, found.task, (), size=5, version="1")


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("mean", "5 values, and the result 1"),
        ("key-value", "is of another kind"),
        ("categorical", "is of another kind"),
    ],
)
def test_an_estimate_of_something_else_is_not_shown(kind: Kind, rule: str) -> None:
    """Though all else of the result is the task's."""
    found = kind_collected("vector")
    other = collected(size=4) if kind == "categorical" else kind_collected(kind)
    result = dataclasses.replace(found.result, estimate=other.result.estimate)
    with pytest.raises(WireError, match=rule):
        estimates_page(result, found.task, (), size=5, version="1")


def test_filters_of_another_size_are_not_shown() -> None:
    """Half of the cohorts are not the task's."""
    found = kind_collected("string")
    table = found.result.estimate
    assert isinstance(table, BitTable)
    half = BitTable(cohort_sizes=table.cohort_sizes[:4], bit_counts=table.bit_counts[:4])
    with pytest.raises(WireError, match=r"filters of \(8, 32\) cohorts and bits"):
        estimates_page(
            dataclasses.replace(found.result, estimate=half), found.task, (), size=0, version="1"
        )


def test_everything_lies_on_its_axis() -> None:
    """From the least to the largest end of all lines; 0 is drawn if it is between them."""
    page = _drawn(_line(low=-1.0), _line(high=3.0))

    assert 'x1="0.0%" x2="75.0%"' in page
    assert 'x1="25.0%" x2="100.0%"' in page
    assert page.count('<line class="zero" x1="25.0%"') == 2
    assert "<span>-1</span><span>3</span>" in page


def test_an_axis_without_0_has_no_line_for_it() -> None:
    """Hours from 7 to 8."""
    assert '<line class="zero"' not in _drawn(_line(low=7.0, figure=7.5, high=8.0))


def test_an_interval_without_width_is_drawn() -> None:
    """All lines at one point: no division by nothing."""
    assert 'cx="0.0%"' in _drawn(_line(low=1.0, high=1.0))


@pytest.mark.parametrize("ends", [{"low": -np.inf, "high": np.inf}, {"high": np.inf}])
def test_an_infinite_interval_reaches_to_the_ends_of_the_axis(ends: dict[str, float]) -> None:
    """And the others are drawn as if it were not there."""
    page = _drawn(_line(**ends), _line(low=-1.0, high=3.0))

    assert 'x2="100.0%"' in page
    assert not re.search(r"(nan|inf)%", page)
