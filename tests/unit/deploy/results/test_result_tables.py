import dataclasses
import io
import json

import numpy as np
import pytest
from rich.console import Console

from common.errors import SettingsError
from common.messages.estimate import Means
from common.protocols import Kind
from common.version import VERSION
from deploy.commands.result import page_of, show_result
from deploy.results.result_json import as_json
from deploy.results.result_tables import MOST_LINES, read_out
from deploy.terminal.json_output import dumps
from tests.support.kind_results import CANDIDATES, bit_table, kind_collected, result_of
from tests.support.kind_tasks import OTHER_KINDS, kind_task
from tests.support.result_pages import collected

_TITLES: dict[Kind, tuple[str, ...]] = {
    "string": ("The share of users who hold each of 3 candidates",),
    "mean": ("The mean of a number",),
    "vector": ("The mean of each of 5 numbers",),
    "key-value": (
        "The share of users who own each of 6 keys",
        "The mean of the values of those who own it",
    ),
}


def _candidates(kind: Kind) -> tuple[str, ...]:
    return CANDIDATES if kind == "string" else ()


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_every_kind_has_its_tables(kind: Kind) -> None:
    """One, or two of pairs."""
    found = kind_collected(kind)
    report = read_out(found.result, found.task, _candidates(kind), most=9)

    assert _TITLES[kind] == tuple(table.title for table in report.tables)


def test_a_histogram_is_not_read_here() -> None:
    """It has a look of its own."""
    found = collected(size=4)

    assert () == read_out(found.result, found.task, (), most=9).tables


def test_texts_without_candidates_are_not_read() -> None:
    """A note says how they are."""
    found = kind_collected("string")
    report = read_out(found.result, found.task, (), most=9)

    assert ((), 0) == (report.tables, report.size)
    assert "--candidates" in report.notes[0]


def test_labels_are_candidates_by_themselves() -> None:
    """Nobody holds anything else in basic RAPPOR."""
    task = kind_task("rappor", labels=CANDIDATES, domain_size=3, texts=None)
    result = result_of(task, estimate=bit_table(task))

    assert list(CANDIDATES) == read_out(result, task, (), most=9).fields["candidates"]


@pytest.mark.parametrize("kind", ["mean", "vector", "key-value"])
def test_candidates_are_refused_where_no_texts_are_collected(kind: Kind) -> None:
    """The message says what is."""
    found = kind_collected(kind)
    with pytest.raises(SettingsError, match=f"the task collects {kind} data"):
        read_out(found.result, found.task, CANDIDATES, most=9)


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_result_of_every_kind_is_printed_with_its_promises(kind: Kind) -> None:
    """The first estimate, and who is promised what."""
    found = kind_collected(kind)
    report = read_out(found.result, found.task, _candidates(kind), most=2)
    console = Console(file=io.StringIO(), width=200)
    show_result(found.result, found.task, report, console, 2)
    printed = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO

    assert _TITLES[kind][0] in printed
    assert report.tables[0].lines[0].name in printed
    assert f"4,000 users by {found.task.protocol}" in printed
    assert "What each user is promised" in printed


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_page_of_every_kind_is_made(kind: Kind) -> None:
    """By the function that the command calls."""
    found = kind_collected(kind)
    report = read_out(found.result, found.task, _candidates(kind), most=MOST_LINES)
    page = page_of(found.result, found.task, report)

    assert all(title in page for title in _TITLES[kind])
    assert VERSION in page


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_result_of_every_kind_is_json(kind: Kind) -> None:
    """What was decoded of texts is among the fields."""
    found = kind_collected(kind)
    report = read_out(found.result, found.task, _candidates(kind), most=9)
    fields = json.loads(dumps({**as_json(found.result), **report.fields}))

    assert kind == fields["kind"]
    assert ("shares" in fields) == (kind == "string")


def test_a_page_with_an_infinite_interval_is_drawn() -> None:
    """Within the axis, at its ends."""
    found = kind_collected("vector")
    ones = np.ones(5)
    errors = np.array([np.inf, 1.0, 1.0, 1.0, 1.0])
    means = Means(means=ones, standard_errors=errors, shrunk=ones, mse_theory=1.0)
    result = dataclasses.replace(found.result, estimate=means)
    page = page_of(result, found.task, read_out(result, found.task, (), most=9))

    assert "nan%" not in page
    assert "inf%" not in page
