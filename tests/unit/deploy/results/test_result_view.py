"""Tables, columns and JSON fields of results of every kind."""

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from shuffledp.analyzer.finalize import estimate_result
from shuffledp.common.errors import SettingsError
from shuffledp.common.mechanisms.base import Mixture
from shuffledp.common.mechanisms.registry import mean_mechanism_of, rappor_of
from shuffledp.common.messages.result import (
    BitTable,
    FoundValues,
    Histogram,
    Means,
    RefusalCause,
    ShareTables,
)
from shuffledp.common.protocols import Kind
from shuffledp.common.task.draft import NumberDraft, OpenDraft, TextDraft
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.specs import KeyValueSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task.view_specs import TableSpec
from shuffledp.deploy.datasets.sample_people import SamplePeople
from shuffledp.deploy.demo.truth import beside_truth
from shuffledp.deploy.results.association import Association
from shuffledp.deploy.results.distribution_view import Questions
from shuffledp.deploy.results.estimate_table import EstimateTable, ResultView
from shuffledp.deploy.results.export import as_json
from shuffledp.deploy.results.result_view import print_estimates, result_view
from shuffledp.deploy.terminal.json_output import dumps
from tests.support.commands import ROOT
from tests.support.kind_results import CANDIDATES, bit_table, kind_collected
from tests.support.kind_tasks import OTHER_KINDS, VALUES, kind_task
from tests.support.printing import printed
from tests.support.protocol_tasks import protocol_task

_KINDS: Final[tuple[Kind, ...]] = ("categorical", *OTHER_KINDS)
_TRUTHS: Final[dict[Kind, list[float]]] = {
    "categorical": [0.5, 0.3, 0.2, *[0.0] * 27],
    "string": [0.75, 0.25, 0.0],
    "open": [0.5, 0.25],
    "mean": [1.5],
    "vector": [1.5, 2.0, 3.0, 4.0, 4.75],
    "key-value": [0.05, 0.2, 0.35, 0.5, 0.65, 0.8],
    "table": [*[1 / 9] * 9, *[1 / 6] * 12],
}
_SHARES: Final = np.array([0.375, 0.5, -0.125, *[0.0] * 26, 0.25])
_HISTOGRAM: Final = Histogram(
    frequencies=_SHARES,
    standard_errors=np.full(30, 0.0625),
    refined=np.maximum(_SHARES, 0) / 1.125,
    mse_theory=0.0625**2,
)
_KEYS: Final = kind_collected("key-value").result.estimate


def _task(kind: Kind) -> Task:
    return protocol_task("sh") if kind == "categorical" else kind_collected(kind).task


def _estimate(kind: Kind) -> Any:
    return _HISTOGRAM if kind == "categorical" else kind_collected(kind).result.estimate


def _people(kind: Kind, **changes: Any) -> SamplePeople:
    fields: dict[str, Any] = {
        "kind": kind,
        "title": "",
        "values": [VALUES.get(kind, 0)],
        "draft": {},
        "truth": np.array(_TRUTHS[kind]),
        "true_means": np.full(6, 2.5) if kind == "key-value" else None,
        "candidates": {"string": CANDIDATES, "open": ("Ohio", "café")}.get(kind, ()),
    }
    return SamplePeople(**fields | changes)


def _view(kind: Kind, most: int = 5, **changes: Any) -> ResultView:
    estimate = dataclasses.replace(_estimate(kind), **changes)
    candidates = CANDIDATES if kind == "string" else ()
    return result_view(estimate, _task(kind), most=most, candidates=candidates)


def _known(kind: Kind, people: SamplePeople | None = None, **changes: Any) -> ResultView:
    """Return a demo's view with the truth; `changes` are of the estimate."""
    estimate = dataclasses.replace(_estimate(kind), **changes)
    return beside_truth(_view(kind, **changes), estimate, _task(kind), people or _people(kind))


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_result_of_every_kind_is_json(kind: Kind, snapshot: SnapshotAssertion) -> None:
    """The JSON has the estimate, its range, and decoded texts; the operators' page names all."""
    found = kind_collected(kind)
    fields = json.loads(dumps({**as_json(found.result), **_view(kind).fields}))
    fields.pop("bit_counts", None)
    page = (ROOT / "docs" / "operators" / "index.md").read_text(encoding="utf-8")

    assert [] == [name for name in fields if f"`{name}`" not in page]
    assert kind == fields["kind"]
    assert snapshot == (sorted(fields) if kind == "string" else json.dumps(fields, indent=1))


def test_an_infinite_error_of_a_candidate_is_text_in_json() -> None:
    """The candidate's bits equal another's; seed 1."""
    texts = TextDraft(bits=8, hashes=1, cohorts=4, permanent=0.0, unset=0.25, set=0.75)
    task, names = kind_task("rappor", texts=texts), [f"1:{number}" for number in range(24)]
    people, rng = np.full(24, 30_000), np.random.default_rng(1)
    cells = rappor_of(task).sample_cells(people, names, rng)
    table = BitTable(cohort_sizes=cells[:4], bit_counts=cells[4:].reshape(4, 8))
    view = result_view(table, task, most=1, candidates=names)
    fields, shown = json.loads(dumps(view.fields)), view.tables[0]

    assert "inf" in fields["standard_errors"]
    assert shown.errors.tolist() == [float(error) for error in fields["standard_errors"]]
    assert (names, shown.values.tolist()) == (fields["candidates"], fields["shares"])
    assert 1 == pytest.approx(fields["explained"] + fields["unexplained"])


@pytest.mark.parametrize("kind", ["categorical", "mean", "vector", "key-value"])
def test_candidates_are_refused_where_no_texts_are_collected(kind: Kind) -> None:
    """The message names the kind of data."""
    with pytest.raises(SettingsError, match=f"this task collects {kind} data"):
        result_view(_estimate(kind), _task(kind), most=9, candidates=CANDIDATES)


@pytest.mark.parametrize(
    ("errors", "number", "written"),
    [
        ([12.0, 300.0], 0.5678, "1"),
        ([0.5], 0.123456, "0.12"),
        ([0.099, 2.0], 0.123456, "0.123"),
        ([0.05], -0.0004, "0.000"),
        ([1e-30], 0.123456, "0.12345600"),
        ([0.0], 0.123456, "0.1235"),
        ([], 0.123456, "0.1235"),
        ([0.5], np.inf, "inf"),
    ],
)
def test_a_figure_has_the_decimals_that_noise_leaves(
    errors: list[float], number: float, written: str
) -> None:
    """Two digits of the least error, or four of the figure; 0 has no sign."""
    size = len(errors)
    table = EstimateTable(
        title="",
        name="",
        value="",
        names=[""] * size,
        values=np.zeros(size),
        errors=np.array(errors),
        shown=range(size),
    )

    assert written == table.format(number)


_KEY_VALUES: Final = _task("key-value")
_OWN_FAKES: Final = dataclasses.replace(
    _KEY_VALUES,
    mechanism=dataclasses.replace(spec_as(_KEY_VALUES.mechanism, KeyValueSpec), fakes=(1.0,) * 6),
)


def _few_means(labels: tuple[str, ...], size: int) -> ResultView:
    task = kind_task("piecewise", labels=labels, domain_size=size)
    ones = np.ones(size)
    means = Means(means=ones, standard_errors=ones, shrunk=ones, mse_theory=1.0)
    return result_view(means, task, most=9)


def _labelled(candidates: tuple[str, ...] = ()) -> ResultView:
    """View a result of basic RAPPOR, whose users hold only the labels of the task."""
    task = kind_task("rappor", labels=CANDIDATES, domain_size=3, texts=None)
    return result_view(bit_table(task), task, most=9, candidates=candidates)


_VIEWS: Final[dict[str, Callable[[], ResultView]]] = {
    **{kind: partial(_view, kind) for kind in _KINDS},
    **{f"{kind} beside the truth": partial(_known, kind) for kind in _KINDS},
    "biased means: noise alone": lambda: _view("vector", unbiased=False),
    "biased means beside the truth": lambda: _known("vector", unbiased=False),
    "a key without reports has no row but a note": lambda: _view(
        "key-value", most=9, reports=np.array([1200, 0, 700, 700, 700, 700])
    ),
    "the task's own fakes": lambda: result_view(_KEYS, _OWN_FAKES, most=1),
    "a later iteration has no owners": lambda: _known("key-value", owners=None),
    "a single mean has no number": lambda: _few_means((), 1),
    "a labelled mean": lambda: _few_means(("hours",), 1),
    # 0.125² = 0.075² + 0.1²
    "a mean of digits, with both parts of its error": lambda: _view("mean", rounding_error=0.1),
    "means of digits": lambda: _view("vector", rounding_error=0.1),
    # An interval by itself lies above 0, but no value is distinguishable from none.
    "too few users": lambda: _view("categorical", standard_errors=np.full(30, 0.2)),
    "texts without candidates": lambda: result_view(_estimate("string"), _task("string"), most=5),
    "labels without a file of candidates": _labelled,
    "some labels as candidates": lambda: _labelled(CANDIDATES[:2]),
    # Ohio and Utah are detected by far, and Utah is held by nobody.
    "a false discovery": lambda: _known(
        "string", _people("string", truth=np.array([0.99, 0.0, 0.01001]))
    ),
}


@pytest.mark.parametrize("name", _VIEWS)
def test_a_view_is_printed(name: str, snapshot: SnapshotAssertion) -> None:
    """Tables with intervals and notes, a demo's truth and errors, and columns of files."""
    view = _VIEWS[name]()

    assert snapshot == printed(partial(print_estimates, view), width=120)
    assert snapshot == (list(view.columns), list(view.fields))


def test_texts_that_were_not_spelled_are_counted() -> None:
    """The share that is found for sure is a lower bound; there is no least share."""
    hashes = ("ba7816bf8f01cfea", "11ee" * 4)
    form = OpenDraft(encoding="spell", most_bytes=12)
    task = kind_task("discover", open=form, labels=hashes)
    one = np.array([0.01])
    found = FoundValues(
        values=(b"abc",),
        shares=one,
        standard_errors=one / 10,
        reports=np.full(12, 9),
        sure_share=0.002,
        least_share=0.0,
        expected_false=0.0,
    )
    view = result_view(found, task, most=9)

    [rare, missing, _] = view.tables[0].notes
    assert rare.endswith("hold is found with at least 95\N{NO-BREAK SPACE}% probability.")
    assert "Texts of 1 of 2 hashes were not found." == missing
    assert list(hashes[1:]) == view.fields["not_spelled_labels"]


_WIDE: Final = np.full(6, 100.0)
"""Errors of intervals that are wider than every range."""


@pytest.mark.parametrize("kind", _KINDS)
def test_every_kind_says_if_there_are_too_few_users(kind: Kind) -> None:
    """Where no share is above 0, or an interval is as wide as the range; not otherwise."""
    estimate, zero = _estimate(kind), np.zeros(6)
    candidates = CANDIDATES if kind == "string" else ()
    fields: dict[str, Any] = {"standard_errors": np.full(30, 9.0)}
    if kind in {"mean", "vector"}:
        fields = {"standard_errors": _WIDE[: len(estimate.means)]}
    elif kind == "key-value":
        owners = dataclasses.replace(estimate.owners, frequencies=zero)
        fields = {"owners": owners}
    elif kind == "open":
        fields = {"sure_share": 1.0}
    elif kind == "table":
        fields = {
            name: tuple(dataclasses.replace(one, standard_error=9.0) for one in of_one)
            for name, of_one in (("tables", estimate.tables), ("attributes", estimate.attributes))
        }
    elif kind == "string":
        sizes = np.minimum(estimate.cohort_sizes, 1)
        fields = {"cohort_sizes": sizes, "bit_counts": np.minimum(estimate.bit_counts, 0)}
    few = dataclasses.replace(estimate, **fields)
    found, enough = (
        result_view(each, _task(kind), most=9, candidates=candidates).warning
        for each in (few, estimate)
    )

    assert found.startswith("Too few users for this much noise")
    assert not enough


def test_intervals_of_few_bits_are_asymmetric() -> None:
    """
    Of 49 "+" and one "-" by Duchi at ε = 4: Wilson's intervals for shares of .97 and .99, half a
    report from .98, in the task's units.
    """
    numbers = NumberDraft(low=0.0, high=10.0)
    task = kind_task("duchi", local_epsilon=4.0, numbers=numbers)
    mechanism = mean_mechanism_of(task)
    found = estimate_result(task, mechanism, np.array([1, 49]), Mixture(n_real=50))
    [table] = result_view(found, task, most=9).tables
    low, high = (float(end[0]) for end in table.ends)

    assert [8.9407, 9.9791, 10.1757] == pytest.approx([low, table.values[0], high], abs=1e-4)


def test_the_remark_counts_intervals_as_wide_as_the_range() -> None:
    """One number of five, whose range is 4."""
    estimate = _estimate("vector")
    errors = estimate.standard_errors.copy()
    errors[1] = 1.03
    wide = dataclasses.replace(estimate, standard_errors=errors)

    found = result_view(wide, _task("vector"), most=9).warning
    assert found.endswith("1 of 5 intervals are at least as wide as the range.")


def test_means_of_rare_keys_are_marked_as_biased() -> None:
    """Where the share is below 5 standard errors: the first key's .05 ± .02, not .2 ± .02."""
    view = result_view(_KEYS, _task("key-value"), most=9)
    [_, means] = view.tables

    assert ["yes", *["no"] * 5] == means.more["biased"] == view.columns["mean_biased"]
    assert "marked as biased: 1." in means.notes[0]


def test_tests_of_tables_have_the_sampling_error_of_the_counted_users() -> None:
    """Half of all reports are refused: the figures are those of half as many people."""
    task, whole = _task("table"), kind_collected("table").result
    estimate = cast("ShareTables", whole.estimate)
    refused: dict[RefusalCause, int] = {"repeated": whole.n_reports // 2}
    half = dataclasses.replace(whole, refused=refused, n_dummies=whole.n_dummies // 2)
    found = result_view(estimate, task, most=9, questions=Questions(batch=half, task=task)).fields
    asked = spec_as(task.mechanism, TableSpec).tables
    pairs = [(each, own) for each, own in zip(estimate.tables, asked, strict=True) if own[1:]]
    expected = [
        Association.of(each, [estimate.attributes[a] for a in own], whole.n_users // 2)
        for each, own in pairs
    ]

    assert [each.p_value for each in expected] == [
        each["p_value"] for each in found["associations"]
    ]
