"""Comparisons as tables, by value, as CSV and as JSON."""

import dataclasses
import json
from functools import partial
from typing import Final

import pytest
from syrupy.assertion import SnapshotAssertion

from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.lab.planning.requirements import Accounting
from shuffledp.lab.simulate.table import as_csv, remarks, show
from tests.support.changed_tasks import changed
from tests.support.printing import printed
from tests.support.requirements import designed, small_requirements
from tests.support.simulated_rows import REFUSED, TASK, row

_CENTRAL: Final = {
    "laplace_mse": 1.25e-9,
    "gaussian_mse": 3.75e-9,
    "regret": 0.03125,
    "exponential_regret": 0.0625,
}


@pytest.mark.parametrize("width", [60, 100, 140])
@pytest.mark.parametrize("accountings", [("tight",), ("published", "tight")])
def test_no_figure_is_cut_however_narrow_the_terminal(
    width: int, accountings: tuple[Accounting, ...]
) -> None:
    """Columns follow in further tables: a local epsilon of 20 as 2 would be another guarantee."""
    rows = [
        row(protocol, 0.15, (1.234e-8, 2.345e-8, *[1.79e-8] * 4), accounting)
        for protocol in ("od-hp", "ldp-olh-strings", "murs")
        for accounting in accountings
    ]
    text = printed(partial(show, rows), width)
    lines = [line.split() for line in text.splitlines() if " 0.15 " in line and "value" not in line]

    promised = [rounded_up(TASK.central_epsilon), rounded_up(TASK.local_epsilon)]
    for place, each in enumerate(rows):
        shown = [figure for line in lines[place :: len(rows)] for figure in line]
        assert {each.protocol, "1.79e-08", "±21%", *promised} <= {*shown}
    assert "…" not in text
    assert all(name in text for name in ("rel. error", "parameters", "regret", "murs ε 0.15"))


@pytest.mark.parametrize("width", [90, 200])
def test_a_comparison_has_lines_of_a_trusted_collector_and_by_value(
    width: int, snapshot: SnapshotAssertion
) -> None:
    """Central mechanisms and notes appear once per target; a narrow terminal has more tables."""
    rows = [
        row(protocol, epsilon, (1e-8, 2e-8) * 3, note=note, reference=_CENTRAL)
        for epsilon in (0.75, 0.25)
        for protocol, note in (("od-hp", ""), ("murs", "it is blunt"))
    ]

    assert snapshot == printed(partial(show, [*rows, REFUSED]), width)


def test_a_local_epsilon_above_the_limit_of_devices_is_noted() -> None:
    """The limit is a local epsilon of 4."""
    low = row("od-hp", 0.15, (1e-8,))
    high = dataclasses.replace(low, task=changed(TASK, local_epsilon=4.5))

    assert [] == remarks([low])
    assert remarks([low, high])[0].endswith("compare with --local-cap 4.")


def test_a_row_of_two_shufflers_says_so() -> None:
    """Both numbers of dummies, and the coalition ε, which devices judge instead of the local ε."""
    target = small_requirements(central_epsilon=1.0, shufflers=2)
    task = designed("sageo", target).task
    two = dataclasses.replace(row("sageo", 1.0, (1e-8,)), task=task)
    text = printed(partial(show, [two]), 200)

    assert "25 + 7 per item, two shufflers" in text
    assert "coalition ε" in text
    assert (2, task.coalition_epsilon) == tuple(
        two.as_json()[name] for name in ("shufflers", "coalition_epsilon")
    )
    assert [] == remarks([two])


def test_rows_have_every_field_in_json_and_in_csv(snapshot: SnapshotAssertion) -> None:
    """A skipped setting has a reason and no figures; its cells are empty in CSV."""
    rows = [row("murs", 0.5, (1e-6, 3e-6), note="a, note", reference=_CENTRAL), REFUSED]

    fields = [each.as_json(by_value=True) for each in rows]
    assert snapshot == json.dumps(fields, allow_nan=False, indent=1)
    assert snapshot == as_csv(rows)
