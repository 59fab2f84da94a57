"""Smoothing over rounds, against dense linear algebra; and what is shown of a series."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from analyzer.budgets import PopulationBudget
from common.errors import TaskError, WireError
from common.messages.result import Figures
from common.protocols import Kind
from deploy.pages.series_page import series_page
from deploy.results.estimate_table import EstimateTable
from deploy.results.export import write_csv, write_parquet
from deploy.results.series import SeriesResults, smooth
from deploy.tasks.population_budgets import PopulationBudgets
from deploy.tasks.schedule import read_series
from deploy.terminal.json_output import dumps
from tests.support.chains import chain
from tests.support.kind_results import kind_collected
from tests.support.ledger_entries import first_entry
from tests.support.printing import printed
from tests.support.series import MISSED, month, template


def _noisy() -> tuple[Figures, Figures, Figures]:
    """Return estimates of 25 rounds, the fourth without any, and an item first seen in round 2."""
    rng = np.random.default_rng(5)
    scales = np.array([1.0, 2.0, 0.3])
    steps = 0.4 * np.sqrt(scales) * rng.standard_normal((25, 3))
    errors = rng.uniform(0.5, 1.5, (25, 3))
    values = np.cumsum(steps, axis=0) + errors * rng.standard_normal((25, 3))
    missing = np.zeros((25, 3), dtype=bool)
    missing[3], missing[0, 1] = True, True
    return np.where(missing, 0, values), np.where(missing, np.inf, errors), scales


def _dense(values: Figures, errors: Figures, step: float) -> tuple[Figures, Figures, float]:
    """Return an item's levels, covariance and diffuse log-likelihood by solving all at once."""
    weights, walk = np.diag(1 / errors**2), np.diff(np.eye(len(values)), axis=0)
    covariance = np.asarray(np.linalg.inv(weights + walk.T @ walk / step), dtype=np.float64)
    seen = np.isfinite(errors)
    times = np.flatnonzero(seen)
    contrasts = np.diff(np.eye(seen.sum()), axis=0)
    spread = step * np.minimum.outer(times, times) + np.diag(errors[seen] ** 2)
    inner = contrasts @ spread @ contrasts.T
    moved = contrasts @ values[seen]
    likelihood = -(np.linalg.slogdet(inner)[1] + moved @ np.linalg.solve(inner, moved)) / 2
    return covariance @ weights @ values, covariance, float(likelihood)


def test_the_smoother_equals_the_solution_of_all_equations_at_once() -> None:
    """Levels and errors agree, and no other variance of steps is likelier [DK12]."""
    values, errors, scales = _noisy()
    found = smooth(values, errors, scales)
    items = range(3)
    for item in items:
        step = found.variance * scales[item]
        levels, covariance, _ = _dense(values[:, item], errors[:, item], step)
        assert levels == pytest.approx(found.levels[:, item], abs=1e-12)
        assert np.sqrt(np.diag(covariance)) == pytest.approx(found.errors[:, item], abs=1e-12)

    def likelihood(variance: float) -> float:
        return sum(_dense(values[:, i], errors[:, i], variance * scales[i])[2] for i in items)

    best = likelihood(found.variance)
    tried = found.variance * np.geomspace(1e-3, 1e3, 101)
    assert best >= max(map(likelihood, tried)) - 1e-9
    assert best - likelihood(found.variance * 2) > 1e-3


def test_constant_shares_are_averaged() -> None:
    """Without movement the smoothed error is that of the mean of all rounds, nearly."""
    values = np.full((16, 5), 0.25)
    found = smooth(values, np.full((16, 5), 0.01), np.ones(5))

    assert values == pytest.approx(found.levels)
    assert found.errors == pytest.approx(np.full((16, 5), 0.0025), rel=0.01)


def test_intervals_of_frequent_values_cover_the_truth() -> None:
    """
    Ten frequent values whose logarithms drift by 3 % a round, beside 290 rare ones.

    Seed 7. Over 300 seeds coverage is .958 on average with a standard deviation of .012, and the
    error of the last five values .845 ± .013 of the noise: either bound fails by chance with
    probability below 1e-6. Equal steps of all 300 values give a coverage of .63, and equal steps of
    the ten an error of .946.
    """
    rng = np.random.default_rng(7)
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
    results = SeriesResults(rounds=(), estimates=estimates, costs={}, of_shares=True, top=10)
    low, high = results.ends
    covered = (low <= truth[:, [*results.shown]]) & (truth[:, [*results.shown]] <= high)

    assert 0.88 < covered.mean() < 0.999
    assert results.smoothed.errors[:, 5:].mean() < 0.91 * 5e-4


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
    """Its shares sum to less than its noise. The table's intervals are those of every round."""
    _, results = month(tmp_path, top=20)
    last = max(results.estimates)
    hidden, step = results.estimates, 0.006 * np.sign(np.arange(20) - 18.5)
    for number, table in hidden.items():
        moved = np.where(np.arange(20) < 18, table.values, (1 if number > last / 2 else -1) * step)
        ends = (moved - 0.01 * number, moved + 0.02 * number)
        hidden = {**hidden, number: replace(table, values=moved, given_ends=ends)}
    results = replace(results, estimates=hidden)
    level = results.smoothed.levels[:, [*results.shown].index(18)]

    assert level[0] - level[-1] > 0.001
    for table in results.tables:
        above = table.ends[1] - table.values
        assert [0.02 * number for number in hidden] == pytest.approx(above.tolist())


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
    """A result must fit its task, and all rounds the same values."""
    found = kind_collected(kind)
    released = {number: (found.task, found.result, first_entry()) for number in (1, 2)}
    results = SeriesResults.of((), 3, released)

    assert {1, 2} == set(results.costs)
    assert [value] * shown == [table.value for table in results.tables]
    if shown:
        named = kind_collected(kind, labels=("a", "b", "c", "d", "e"))
        other = released | {2: (named.task, named.result, first_entry())}
        with pytest.raises(TaskError, match="must ask about the same values"):
            SeriesResults.of((), 3, other)
        with pytest.raises(WireError, match="the result's digest is"):
            SeriesResults.of((), 3, {1: (named.task, found.result, first_entry())})
