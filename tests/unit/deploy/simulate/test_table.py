import io
from typing import Final

import numpy as np
import pytest
from rich.console import Console

from common.messages.guarantee import rounded_up
from deploy.datasets.catalogue import Dataset
from deploy.simulate.baselines.central_error import Reference
from deploy.simulate.row import Accounting
from deploy.simulate.sweep import Sweep, central_lines, reference
from deploy.simulate.table import show
from tests.support.simulated_rows import TASK, row


@pytest.mark.parametrize("width", [60, 80, 100, 139, 140])
@pytest.mark.parametrize("accountings", [("tight",), ("published", "tight")])
def test_no_figure_is_cut_however_narrow_the_terminal(
    width: int, accountings: tuple[Accounting, ...]
) -> None:
    """A local epsilon of 20 that is shown as 2 would be another promise: columns give way."""
    rows = [
        row(protocol, 0.15, (1.234e-8, 2.345e-8), accounting)
        for protocol in ("od-hp", "ldp-olh-strings", "murs")
        for accounting in accountings
    ]
    written = io.StringIO()
    show(rows, "made", Console(file=written, width=width))
    lines = [line.split() for line in written.getvalue().splitlines() if " 0.15 " in line]

    promised = [rounded_up(TASK.central_epsilon), rounded_up(TASK.local_epsilon)]
    assert len(rows) == len(lines)
    for line in lines:
        assert {"0.15", "1.79e-08", "±31%", *promised} <= set(line)
    assert "…" not in written.getvalue()


_REFERENCE: Final = Reference(laplace_mse=1.25e-9, gaussian_mse=3.75e-9, regret=0.03125)


def test_every_comparison_has_lines_of_a_trusted_collector() -> None:
    """At each target, once, whatever protocols there are; with the same figures in JSON."""
    rows = [
        row(protocol, epsilon, (1e-8, 2e-8), reference=_REFERENCE)
        for epsilon in (0.25, 0.75)
        for protocol in ("od-hp", "murs")
    ]
    written = io.StringIO()
    show(rows, "made", Console(file=written, width=200))
    text = written.getvalue().splitlines()
    lines = [line.split() for line in text if line.strip().startswith("central ")]

    names = ["Laplace", "Gaussian", "choice"]
    assert [["central", name, each] for each in ("0.25", "0.75") for name in names] == [
        line[:3] for line in lines
    ]
    for target, place in (("0.25", 0), ("0.75", 3)):
        for line in lines[place : place + 3]:
            assert {target, "inf"} <= set(line)  # promised, and nothing against the collector
    assert [True, True] == ["1.25e-09" in lines[place] for place in (0, 3)]
    assert [True, True] == ["3.75e-09" in lines[place] for place in (1, 4)]
    assert [True, True] == ["0.031" in lines[place] for place in (2, 5)]
    assert "trusted with every value" in written.getvalue()
    fields = rows[0].as_json()
    assert (1.25e-9, 3.75e-9, 0.03125) == (
        fields["central_laplace_mse"],
        fields["central_gaussian_mse"],
        fields["central_regret"],
    )


def test_a_narrow_table_leaves_out_lines_that_would_be_empty() -> None:
    """A choice has a regret, and no error of a share."""
    written = io.StringIO()
    rows = [row("od-hp", 0.25, (1e-8, 2e-8), reference=_REFERENCE)]
    show(rows, "made", Console(file=written, width=90))

    assert "central Gaussian" in written.getvalue()
    assert "central choice" not in written.getvalue()


def test_the_reference_is_about_the_people_of_the_first_repeat() -> None:
    """Half of them leave next to nothing between two items of 30 and 10 people."""
    half = _sweep(20)
    counts = half.dataset.sample_counts(20, np.random.default_rng((1, 0)))
    found = reference(half, 0.5)

    assert Reference.of(counts, 0.5, 1e-6) == found
    assert 20 == counts.sum()
    assert found.lines() == central_lines(half, 0.5)
    assert {"central Laplace", "central Gaussian"} == found.lines().keys()
    assert found.laplace_mse > reference(_sweep(40), 0.5).laplace_mse


def _sweep(n_users: int) -> Sweep:
    dataset = Dataset(name="made", title="made", labels=(), counts=np.array([30, 10]))
    return Sweep(
        dataset=dataset,
        n_users=n_users,
        protocols=("sh",),
        central_epsilons=(0.5,),
        delta=1e-6,
        accounting=("tight",),
        repeats=1,
        messages_cap=5.0,
        local_cap=8.0,
        seed=1,
    )
