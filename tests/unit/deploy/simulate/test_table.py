"""A comparison as a table, by value, as CSV and as JSON."""

import csv
import io
import json
import math
from typing import Final

import pytest
from rich.console import Console

from common.messages.guarantee import rounded_up
from deploy.simulate.row import Accounting, SweepRow
from deploy.simulate.table import as_csv, as_json, show
from tests.support.simulated_rows import ERRORS, TASK, refused_row, row

_CENTRAL: Final = {
    "laplace_mse": 1.25e-9,
    "gaussian_mse": 3.75e-9,
    "regret": 0.03125,
    "exponential_regret": 0.0625,
}


def _shown(rows: list[SweepRow], width: int) -> str:
    written = io.StringIO()
    show(rows, Console(file=written, width=width))
    return written.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 139, 140])
@pytest.mark.parametrize("accountings", [("tight",), ("published", "tight")])
def test_no_figure_is_cut_however_narrow_the_terminal(
    width: int, accountings: tuple[Accounting, ...]
) -> None:
    """A local epsilon of 20 that is shown as 2 would be another guarantee: columns give way."""
    rows = [
        row(protocol, 0.15, (1.234e-8, 2.345e-8), accounting)
        for protocol in ("od-hp", "ldp-olh-strings", "murs")
        for accounting in accountings
    ]
    text = _shown(rows, width)
    lines = [line.split() for line in text.splitlines() if " 0.15 " in line]

    promised = [rounded_up(TASK.central_epsilon), rounded_up(TASK.local_epsilon)]
    assert len(rows) == len(lines)
    for line in lines:
        assert {"0.15", "1.79e-08", "±31%", *promised} <= set(line)
    assert "…" not in text


def test_every_comparison_has_lines_of_a_trusted_collector() -> None:
    """At each target, once, whatever protocols there are; a narrow table drops empty lines."""
    rows = [
        row(protocol, epsilon, (1e-8, 2e-8), reference=_CENTRAL)
        for epsilon in (0.25, 0.75)
        for protocol in ("od-hp", "murs")
    ]
    text = _shown(rows, 200)
    lines = [line.split() for line in text.splitlines() if line.strip().startswith("central ")]
    figures = {
        "Laplace": "1.25e-09",
        "Gaussian": "3.75e-09",
        "choice": "0.031",
        "exponential": "0.062",
    }

    assert [["central", name, each] for each in ("0.25", "0.75") for name in figures] == [
        line[:3] for line in lines
    ]
    for line in lines:
        assert {figures[line[1]], "inf"} <= set(line)  # nothing holds against the collector
    assert "trusted with every value" in text
    narrow = _shown(rows, 90)
    assert "central Gaussian" in narrow
    assert "central choice" not in narrow


def test_few_values_are_shown_by_value() -> None:
    """The true share, and each setting's estimate with its standard error."""
    rows = [row("od-hp", 0.25, (1e-8,)), row("murs", 0.25, (1e-8,))]
    text = _shown(rows, 120)
    [line] = [line.split() for line in text.splitlines() if line.split()[:1] == ["b"]]

    assert ["b", "0.3", "0.31", "±", "0.02", "0.31", "±", "0.02"] == line
    found = as_json(rows, by_value=True)[0]["by_value"][2]
    assert "c" == found.pop("value")
    assert {"truth": 0.2, "estimate": 0.21, "standard_error": 0.02} == pytest.approx(found)
    assert "by_value" not in as_json(rows)[0]


def test_a_row_has_every_field() -> None:
    """Flat, with a standard error beside each error, and ready for strict JSON."""
    fields = row("od-hp", 0.5, (1e-6, 3e-6), reference=_CENTRAL).as_json()
    names = (
        "protocol target_epsilon accounting dataset n_users domain_size mechanism buckets "
        "dummies_per_user messages_per_user bytes_per_user shuffler_keeps "
        "shuffler_dummies_per_item shuffler_dummies_variance refinement mse_theory central_epsilon "
        "local_epsilon delta neighbouring published note repeats seconds one_by_one "
        "central_laplace_mse central_gaussian_mse central_regret"
    )

    assert set(names.split()) <= set(fields)
    assert {*ERRORS, *(f"{name}_se" for name in ERRORS)} <= set(fields)
    assert (2e-6, 1e-6, 2e-6) == pytest.approx(
        (fields["mse"], fields["mse_se"], fields["mse_theory"])
    )
    json.dumps(fields, allow_nan=False)


def test_a_refused_setting_says_why_and_has_no_figures() -> None:
    """In JSON; and in CSV with empty cells, whose columns are those of all rows together."""
    rows = [refused_row("aue"), row("murs", 0.1, (1e-6,), note="a, note")]
    refused, found = csv.DictReader(io.StringIO(as_csv(rows)))

    assert "mse" not in rows[0].as_json()
    assert math.isnan(rows[0].messages_per_user)
    assert ("it is too much", "") == (refused["refusal"], refused["mse"])
    assert ("", "1e-06", "a, note") == (found["refusal"], found["mse"], found["note"])
