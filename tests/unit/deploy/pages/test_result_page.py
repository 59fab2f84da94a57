"""The page of a result, of every kind of value."""

import dataclasses
import re
from html import unescape
from typing import Any, Final

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from common.messages.estimate import Histogram, KeyValues, Means
from common.messages.result import Result
from common.protocols import PROTOCOLS, Kind, protocols_of
from common.task.draft import PairDraft, TextDraft
from common.task.task import Task
from deploy.datasets.sample_people import SamplePeople
from deploy.pages.result_page import drawn, result_page
from deploy.results.estimate_table import EstimateRow, EstimateTable
from deploy.results.result_view import result_view
from tests.support.kind_results import CANDIDATES, kind_collected, result_of
from tests.support.kind_tasks import OF_OTHER_KINDS, OTHER_KINDS, kind_task
from tests.support.page_text import page_text
from tests.support.protocol_tasks import protocol_task
from tests.support.result_pages import collected
from tests.support.tasks import published

_COLLECTED: Final = collected(size=100)
_HOSTILE: Final = "<script>alert(1)</script>\"'&{{7*7}}"


def _page(result: Result, task: Task, **changes: Any) -> str:
    view = result_view(result.estimate, task, **{"most": 99, **changes})
    return result_page(result, task, view, version="1.2.3")


def _of_kind(kind: Kind, labels: tuple[str, ...] = (), **changes: Any) -> str:
    found = kind_collected(kind, labels)
    asked = {"candidates": CANDIDATES} if kind == "string" else {}
    return _page(found.result, found.task, **asked, **changes)


def _items(**changes: Any) -> str:
    return _page(dataclasses.replace(_COLLECTED.result, **changes), _COLLECTED.task)


def _known(truth: list[float], kind: Kind) -> SamplePeople:
    return SamplePeople(kind=kind, title="", values=[], draft={}, truth=np.array(truth))


def _story(page: str) -> str:
    return page_text(page).partition("Each person")[2].partition("Protocol")[0]


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_all_is_on_the_page_of_every_kind(kind: Kind, snapshot: SnapshotAssertion) -> None:
    """Estimates, guarantees in sentences, refused reports, parameters, and how to cite it."""
    assert snapshot == page_text(_of_kind(kind))


def test_all_but_the_histogram_is_in_the_text_of_its_page(snapshot: SnapshotAssertion) -> None:
    """Its values are drawn by the page's script."""
    truth = _known(_COLLECTED.truth.tolist(), "categorical")
    assert snapshot == page_text(_page(_COLLECTED.result, _COLLECTED.task, people=truth))


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_only_a_histogram_needs_a_script(kind: Kind) -> None:
    """No other runs one; none fetches anything."""
    for page, scripts in ((_of_kind(kind), 0), (_items(), 2)):
        assert scripts == page.count("<script")
        assert not re.search(r"""(src|href)\s*=\s*["'](https?:)?//""", page)
        assert not re.search(r"\son[a-z]+\s*=", page)


@pytest.mark.parametrize("kind", ["mean", "vector", "key-value"])
def test_a_hostile_label_is_text(kind: Kind) -> None:
    """Neither markup nor a template."""
    size = kind_collected(kind).task.domain_size
    page = _of_kind(kind, (_HOSTILE, *(f"label {number}" for number in range(1, size))))

    assert "<script>alert" not in page
    assert f">{_HOSTILE}</th>" in unescape(page)


def test_a_hostile_candidate_or_population_is_text() -> None:
    """Whoever wrote it."""
    found = kind_collected("string")
    task = dataclasses.replace(found.task, population=_HOSTILE)
    page = _page(found.result, task, candidates=(_HOSTILE, "Ohio"))

    assert "<script>alert" not in page
    assert f">{_HOSTILE}</th>" in unescape(page)
    assert f"Population: {_HOSTILE}." in unescape(page)


@pytest.mark.parametrize("protocol", [*OF_OTHER_KINDS, *protocols_of("categorical")])
def test_the_page_of_every_protocol_has_its_story_and_all_parameters(
    protocol: str, snapshot: SnapshotAssertion
) -> None:
    """In words; each field of the task and of its mechanism by its name."""
    if protocol in OF_OTHER_KINDS:
        task = kind_task(protocol)
        estimate = kind_collected(task.kind).result.estimate
        if isinstance(estimate, Means):
            estimate = dataclasses.replace(estimate, unbiased=protocol != "multi-rphm")
    else:
        task = protocol_task(protocol)
        ones = np.ones(task.domain_size)
        estimate = Histogram(frequencies=ones, standard_errors=ones, refined=ones, mse_theory=1.0)
    page = _page(result_of(task, estimate=estimate), task)

    for field in dataclasses.fields(task.mechanism):
        assert f"mechanism.{field.name}</code>" in page, field.name
    for field in dataclasses.fields(task):
        if field.name not in {"mechanism", "dummies", "shuffler", "refinement"}:
            named = f">{field.name}</code>" in page
            assert named == (task.kind != "string" or field.name not in {"labels", "domain_size"})
    assert snapshot == _story(page)


def test_every_refinement_has_words() -> None:
    """On the page of a result that has it."""
    rows = [PROTOCOLS[name] for name in protocols_of("categorical")]
    refinements = {row.refinement_for(name): row.name for row in rows for name in row.mechanisms}
    for protocol in refinements.values():
        task = protocol_task(protocol)
        ones = np.ones(task.domain_size)
        estimate = Histogram(frequencies=ones, standard_errors=ones, refined=ones, mse_theory=1.0)
        text = page_text(_page(result_of(task, estimate=estimate), task))

        assert re.search(r"Refined shares are (the|a) .* distribution", text)


@pytest.mark.parametrize("labels", [(), ("a", "b", "c")])
@pytest.mark.parametrize(
    "chances",
    [
        {},
        {"question": "state"},
        {"question": "state", "unset": 0.0, "set": 1.0},
        {"unset": 0.0, "set": 1.0},
        {"permanent": 0.0},
    ],
)
def test_each_variant_of_rappor_has_its_story(
    labels: tuple[str, ...], chances: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    """A filter or a label's bit; noise once, twice or kept."""
    size = {} if labels else {"bits": 32, "cohorts": 8}
    texts = TextDraft(**{"cohorts": 1 if labels else 64, **size, **chances})
    task = kind_task("rappor", labels=labels, texts=texts, population="staff")
    estimate = kind_collected("string").result.estimate
    view = result_view(estimate, kind_collected("string").task, most=1)
    page = result_page(result_of(task, estimate=estimate), task, view, version="1")

    assert snapshot == _story(page)


def test_the_page_of_a_later_iteration_has_no_owners() -> None:
    """Neither in its story nor in its title, and no share is there."""
    pairs = PairDraft(low=0.0, high=5.0, key_share=0.0)
    task, estimate = kind_task("priv-kv", pairs=pairs), kind_collected("key-value").result.estimate
    assert isinstance(estimate, KeyValues)
    later = result_of(task, estimate=dataclasses.replace(estimate, owners=None))
    text = page_text(_page(later, task))

    assert "Means of 6 keys" in text
    assert "the mean of the reports about each key, fakes included." in text
    assert "how many people own" not in text
    assert "share of users" not in text


def test_a_line_of_noise_is_not_called_an_interval() -> None:
    """The text under a picture names its lines as the column's heading does."""
    estimate = kind_collected("vector").result.estimate
    assert isinstance(estimate, Means)
    projected = kind_task("multi-rphm")
    noisy = result_of(projected, estimate=dataclasses.replace(estimate, unbiased=False))

    assert "“95% interval”" in page_text(_of_kind("vector"))
    assert "“± noise alone”" in page_text(_page(noisy, projected))
    assert "“95% interval”" not in page_text(_page(noisy, projected))


def test_texts_without_candidates_have_a_page_that_says_what_to_do() -> None:
    """And no table."""
    found = kind_collected("string")
    page = _page(found.result, found.task)

    assert "--candidates" in page
    assert '<table class="estimates">' not in page


def test_only_a_demo_s_page_shows_the_truth() -> None:
    """In a column, and on the axis."""
    page = _of_kind("vector", people=_known([1.0, 2.0, 3.0, 4.0, 4.99], "vector"))

    assert "4.99" in page
    assert '<line class="truth"' in page
    assert '<line class="truth"' not in _of_kind("vector")


def test_nothing_is_charged_to_a_population_where_there_is_none() -> None:
    """The task then only claims it."""
    alone = published(domain_size=100, local_epsilon=4.0).task

    assert "charged to the population" in _items()
    assert "charged to the population" not in _page(_COLLECTED.result, alone)
    assert "what the task claims" in _page(_COLLECTED.result, alone)


def test_a_claim_above_the_computed_figure_is_explained() -> None:
    """A claim of the local epsilon has no room."""
    local = published(domain_size=100, protocol="ldp-oue", buckets=0, dummies_per_user=0).task

    assert "a little more than the one that is computed" in _items()
    assert "a little more than" not in _page(_COLLECTED.result, local)


def test_few_users_are_said_to_be_too_few() -> None:
    """Where no value is distinguishable from none, of all at once."""
    histogram = _COLLECTED.result.histogram
    errors = np.full(100, histogram.frequencies.max() / 2.5)

    assert "Too few users" in _items(
        estimate=dataclasses.replace(histogram, standard_errors=errors)
    )
    assert "Too few users" not in _items()


@pytest.mark.parametrize("population", ["panel 2.0", "v1.0"])
def test_a_name_that_ends_like_a_number_is_whole(population: str) -> None:
    """Only of numbers `.0` is dropped."""
    task = dataclasses.replace(_COLLECTED.task, population=population)
    text = page_text(_page(_COLLECTED.result, task))

    assert f"population | {population}\n" in text
    assert "local_epsilon | 4\n" in text


def _drawn(*rows: EstimateRow) -> dict[str, Any]:
    return drawn(EstimateTable(title="t", value="mean", name="n", rows=rows))


def _row(**changes: float) -> EstimateRow:
    return EstimateRow(**{"name": "a", "value": 1.0, "low": 0.0, "high": 2.0, **changes})  # type: ignore[arg-type]  # floats


@pytest.mark.parametrize(
    ("rows", "marks", "zero"),
    [
        ([_row(low=-1.0), _row(high=3.0)], [(0.0, 75.0, 50.0), (25.0, 100.0, 50.0)], 25.0),
        ([_row(low=7.0, value=7.5, high=8.0)], [(0.0, 100.0, 50.0)], None),
        ([_row(low=1.0, high=1.0)], [(0.0, 0.0, 0.0)], None),
        ([_row(truth=4.0)], [(0.0, 50.0, 25.0, 100.0)], 0.0),
        (
            [_row(low=-np.inf, high=np.inf), _row(low=-1.0, high=3.0)],
            [(0.0, 100.0, 50.0), (0.0, 100.0, 50.0)],
            25.0,
        ),
    ],
)
def test_everything_lies_on_its_axis(
    rows: list[EstimateRow], marks: list[tuple[float, ...]], zero: float | None
) -> None:
    """From the least to the largest finite end; 0 is drawn if it is between them."""
    found = _drawn(*rows)

    assert (marks, zero) == (found["marks"], found["zero"])
