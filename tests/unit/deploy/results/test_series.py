"""What is shown of a series: whose shares, raw and smoothed, with intervals on both."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from shuffledp.analyzer.budgets import PopulationBudget
from shuffledp.common.errors import TaskError, WireError
from shuffledp.common.messages.result import Figures, RefusalCause
from shuffledp.common.protocols import Kind
from shuffledp.deploy.pages.series_page import series_page
from shuffledp.deploy.results.estimate_table import EstimateTable
from shuffledp.deploy.results.export import write_csv, write_parquet
from shuffledp.deploy.results.series import SeriesResults
from shuffledp.deploy.tasks.population_budgets import PopulationBudgets
from shuffledp.deploy.tasks.schedule import People, read_series
from shuffledp.deploy.terminal.json_output import dumps
from tests.support.chains import chain
from tests.support.kind_results import N_USERS, kind_collected
from tests.support.ledger_entries import first_entry
from tests.support.printing import printed
from tests.support.series import MISSED, month, template


def test_intervals_of_frequent_values_cover_the_truth() -> None:
    """
    Ten frequent values whose logarithms drift by 3 % a round, of 300, with the same respondents.

    Seed 7. Over 60 seeds coverage is .941 on average with a standard deviation of .015, and the
    error of the last five values .739 ± .028 of the noise: either bound fails by chance with
    probability below 1e-6. Equal steps of the ten give an error of .946.
    """
    results, truth = _drifting(7)
    low, high = results.ends
    covered = (low <= truth[:, [*results.shown]]) & (truth[:, [*results.shown]] <= high)

    assert 0.865 < covered.mean() < 0.999
    assert results.smoothed.errors[:, 5:].mean() < 0.88 * 5e-4


def _drifting(seed: int) -> tuple[SeriesResults, Figures]:
    """Return 30 rounds of 300 values, and their true shares."""
    rng = np.random.default_rng(seed)
    drift = np.cumsum(0.03 * rng.standard_normal((30, 300)), axis=0)
    truth = np.exp(drift) / np.arange(1, 301) ** 1.1
    truth /= truth.sum(axis=1, keepdims=True)
    estimates = {
        number: EstimateTable(
            title="",
            name="value",
            value="share",
            names=list(map(str, range(300))),
            values=shares + 5e-4 * rng.standard_normal(300),
            errors=np.full(300, 5e-4),
            shown=(),
        )
        for number, shares in enumerate(truth, 1)
    }
    costs = {number: first_entry(n_users=10**6) for number in estimates}
    given: dict[str, Any] = {"rounds": (), "estimates": estimates, "costs": costs, "top": 10}
    given["counted"] = dict.fromkeys(estimates, 10**6)
    return SeriesResults(people="same", **given), truth


def test_a_series_is_shown_with_its_gaps(tmp_path: Path) -> None:
    """Names are escaped; a missed round and an overdue one have no estimate; nothing is run."""
    series, results = month(tmp_path, first_name="<b>[red]")
    page = series_page(series, results)
    text = printed(results.show)

    assert 23 == len(results.estimates) == len(results.costs)
    assert [4 * 23] == list({len(column) for column in results.columns().values()})
    assert (4, 4 * 23) == (page.count("<polygon"), page.count("<circle"))
    assert (1, 1) == (page.count('warn">missed<'), page.count('warn">overdue<'))
    assert "&lt;b&gt;[red]" in page
    assert "<b>" not in page
    assert "script" not in page.partition("<body>")[0]
    assert "<b>[red]" in text
    assert f"\n│ {MISSED} " not in text.partition("smoothed")[2]


def test_a_value_that_noise_hides_moves_as_much_as_the_noise(tmp_path: Path) -> None:
    """Its shares sum to less than its noise. With the same people, intervals are every round's."""
    _, results = month(tmp_path, top=20)
    last = max(results.estimates)
    hidden, step = results.estimates, 0.006 * np.sign(np.arange(20) - 18.5)
    for number, table in hidden.items():
        moved = np.where(np.arange(20) < 18, table.values, (1 if number > last / 2 else -1) * step)
        ends = (moved - 0.01 * number, moved + 0.02 * number)
        hidden = {**hidden, number: replace(table, values=moved, given_ends=ends)}
    results = replace(results, estimates=hidden, people="same")
    level = results.smoothed.levels[:, [*results.shown].index(18)]

    assert level[0] - level[-1] > 0.001
    for table in results.tables:
        above = table.ends[1] - table.values
        assert [0.02 * number for number in hidden] == pytest.approx(above.tolist())


@pytest.mark.parametrize(
    ("people", "whose", "sampling"), [("other", "population", 1.0), ("same", "respondents", 0.0)]
)
def test_a_line_says_whose_share_it_is(
    tmp_path: Path, people: People, whose: str, sampling: float
) -> None:
    """If other people answer each round, intervals include who was counted; else neither."""
    series, results = month(tmp_path)
    found = replace(results, people=people)
    page, text, [first, *_] = series_page(series, found), printed(found.show), found.tables
    share = found.smoothed.levels[0, 0]
    error = math.sqrt(0.006**2 + sampling * share * (1 - share) / 617)

    assert [whose] * 4 * 23 == found.columns()["whose"]
    assert f"Bonn: share of the {whose}" in text
    assert f"<small>share of the {whose}</small>" in page
    assert error == pytest.approx(first.errors[0])
    assert 1.96 * error == pytest.approx(first.ends[1][0] - first.values[0], rel=1e-4)
    assert "No budget or guarantee relies on smoothing" in found.note
    assert people in found.note


def test_shifts_are_marked_in_charts_tables_and_files(tmp_path: Path) -> None:
    """At the round with which the new level begins."""
    series, results = month(tmp_path)
    moved = {
        number: replace(table, values=table.values + 0.1 * (number >= 17) * np.eye(20)[1])
        for number, table in results.estimates.items()
    }
    found = replace(results, estimates=moved)
    columns = found.columns()
    marks = zip(columns["round"], columns["shift"], strict=True)

    assert [17] == [number for number, mark in marks if mark]
    assert 1 == series_page(series, found).count('class="shift"')
    assert "share of the population; shift at round 17<" in series_page(series, found)
    assert "│ shift │" in printed(found.show)
    assert 'class="shift"' not in series_page(series, results)


def test_the_budget_of_a_series_is_the_populations(tmp_path: Path) -> None:
    """Page, terminal and JSON have the ledger's figure, whatever other tasks spent, and why."""
    series, results = month(tmp_path)
    budgets = (PopulationBudget(epsilon=5.0, delta=1e-5, spent_epsilon=0.2993),)
    spent = PopulationBudgets(population="daily", releases=40, budgets=budgets, basis="Answers: 3.")
    found = replace(results, budgets=spent)
    page = series_page(series, found)

    assert "ε of all releases to daily so far" in page
    for text in (page, printed(found.show), dumps(found.as_json())):
        assert "0.2993" in text
        assert "Answers: 3." in text
    assert 0.2993 == found.as_json()["population_budgets"]["budgets"][0]["spent_epsilon"]
    names: dict[str, Any] = {name: chain()[name] for name in ("shuffler_name", "relay")}
    two = replace(series, draft=replace(series.draft, **names))
    assert "shufflers" not in page
    assert "two shufflers, first.example and then second.example" in series_page(two, found)
    unknown = replace(results, budgets=replace(spent, budgets=(), unknown="a task is unreadable"))
    assert "not known: a task is unreadable" in series_page(series, unknown)


def test_all_charts_have_one_scale_and_a_line_at_zero(tmp_path: Path) -> None:
    """A share of a tenth of another's is drawn at a tenth of its height above the line."""
    series, results = month(tmp_path)
    page = series_page(series, results)
    [zero] = set(re.findall(r'class="axis" x1="64" x2="468" y1="([0-9.]+)"', page))
    ends = set(re.findall(r'y="16" text-anchor="end">([^<]+)<', page))
    dots = [float(y) for y in re.findall(r'class="dot" cx="64.0" cy="([0-9.]+)"', page)]
    shares = [table.values[0] for table in results.tables]

    assert 1 == len(ends)
    heights = float(zero) - np.array(dots)
    assert heights / heights[0] == pytest.approx(np.array(shares) / shares[0], abs=0.01)
    assert page.count(">0</text>") == len(shares)


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({}, "One of 20 items: rounds of daily"),
        ({"labels": [f"v{number}" for number in range(20)]}, "v0, v1, v2, v3, …: rounds of daily"),
        (
            {"domain_size": None, "edges": '{low = 0.0, high = 20.0, buckets = 20, unit = "km"}'},
            "Numbers from 0 to 20 km: rounds of daily",
        ),
        (
            {
                "protocol": '"rappor"',
                "domain_size": None,
                "buckets": None,
                "dummies_per_user": None,
                "local_epsilon": None,
                "texts": '{question = "State"}',
            },
            "State: rounds of daily",
        ),
    ],
)
def test_the_title_of_a_series_says_what_is_asked(
    tmp_path: Path, changes: dict[str, Any], title: str
) -> None:
    """Labels, edges, a question, or the kind of value."""
    series = read_series(template(tmp_path, **changes))
    _, results = month(tmp_path)

    assert f"<title>{title}" in series_page(series, results).replace("\n", "")


def test_a_series_is_written_as_csv_and_parquet(tmp_path: Path) -> None:
    """A row for each value and round, with the round's deadline."""
    series, results = month(tmp_path, first_name="=1+1")
    write_csv(tmp_path / "daily.csv", results.columns())
    write_parquet(tmp_path / "daily.parquet", None, results.columns())
    read = parquet.read_table(tmp_path / "daily.parquet")

    first, *rows = (tmp_path / "daily.csv").read_text("utf-8").splitlines()
    assert first.startswith("label,round,deadline,share,standard_error,")
    assert [4 * 23] * 2 == [len(rows), read.num_rows]
    assert rows[0].startswith(f'"\'=1+1",1,{series.deadline(1)},')


def test_a_series_without_results_is_shown(tmp_path: Path) -> None:
    """It has rounds, no values, and says so."""
    series, results = month(tmp_path)
    empty = replace(results, estimates={}, costs={})

    assert "No round has released shares or means to smooth." in printed(empty.show)
    assert "<circle" not in series_page(series, empty)
    assert {} == empty.columns()


def test_biased_means_have_no_intervals(tmp_path: Path) -> None:
    """Columns, heading and note say that their ends are of noise alone."""
    series, results = month(tmp_path)
    biased = {
        number: replace(table, biased=True, notes=("Means are biased.",))
        for number, table in results.estimates.items()
    }
    found = replace(results, estimates=biased)

    assert {"smoothed", "smoothed_noise_low", "noise_low"} <= set(found.columns())
    assert not [name for name in found.columns() if "interval" in name]
    assert found.note.startswith("Means are biased. Smoothed: ")
    for text in (series_page(series, found), printed(found.show)):
        assert "± noise alone" in text
        assert "95\N{NO-BREAK SPACE}%" not in text


@pytest.mark.parametrize(("kind", "value", "shown"), [("vector", "mean", 3), ("string", None, 0)])
def test_means_are_smoothed_and_texts_only_counted(
    kind: Kind, value: str | None, shown: int
) -> None:
    """A result must fit its task, and all rounds the same values. Half of one are refused."""
    found = kind_collected(kind)
    refused: dict[RefusalCause, int] = {"repeated": found.result.n_reports // 2}
    half = replace(found.result, refused=refused, n_dummies=found.result.n_dummies // 2)
    both = enumerate((found.result, half if shown else found.result), 1)
    released = {number: (found.task, each, first_entry()) for number, each in both}
    results = SeriesResults.of((), 3, released)
    spec = found.task.mechanism

    assert (getattr(spec, "low", 0.0), getattr(spec, "high", 1.0)) == results.bounds
    assert {1, 2} == set(results.costs)
    assert results.counted == ({1: N_USERS, 2: N_USERS / 2} if shown else {})
    assert [value] * shown == [table.value for table in results.tables]
    if shown:
        named = kind_collected(kind, labels=("a", "b", "c", "d", "e"))
        other = released | {2: (named.task, named.result, first_entry())}
        with pytest.raises(TaskError, match="must ask about the same values"):
            SeriesResults.of((), 3, other)
        with pytest.raises(WireError, match="the result's digest is"):
            SeriesResults.of((), 3, {1: (named.task, found.result, first_entry())})
