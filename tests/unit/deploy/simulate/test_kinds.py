import csv
import io
import json
from functools import cache
from typing import Any, Final

import numpy as np
import pytest
from rich.console import Console

from common.errors import PlanError
from common.protocols import Kind
from deploy.datasets.sample_people import SamplePeople, sample_people
from deploy.simulate.baselines.central_histogram import CentralHistogram
from deploy.simulate.kind_table import as_csv, show
from deploy.simulate.kinds import KindRow, KindSweep, best, central_errors, run_kinds
from tests.support.kind_tasks import OTHER_KINDS

_USERS: Final = 4000
_PROTOCOLS: Final[dict[Kind, tuple[str, ...]]] = {
    "string": ("rappor",),
    "mean": ("duchi", "laplace"),
    "vector": ("harmony", "multi-rphm"),
    "key-value": ("priv-kv",),
}
_REPEATS: Final[dict[Kind, int]] = {"string": 4, "mean": 150, "vector": 40, "key-value": 12}

_SLOW: Final = pytest.param("string", marks=pytest.mark.slow)
"""Three tasks, and three times decoding."""


@cache
def _people(kind: Kind) -> SamplePeople:
    return sample_people(kind, _USERS, 3)


def _sweep(kind: Kind, **changes: Any) -> KindSweep:
    """Ask for a target that the local cap, the first tried, keeps: which is quick."""
    fields: dict[str, Any] = {
        "people": _people(kind),
        "protocols": _PROTOCOLS[kind],
        "central_epsilons": (0.6,),
        "delta": 1e-6,
        "local_cap": 1.0,
        "repeats": _REPEATS[kind],
        "seed": 11,
    }
    return KindSweep(**fields | changes)


def _run(sweep: KindSweep) -> list[KindRow]:
    return run_kinds(sweep, lambda _done, _total: None)


@cache
def _rows(kind: Kind) -> tuple[KindRow, ...]:
    return tuple(_run(_sweep(kind)))


@pytest.mark.parametrize("kind", ["mean", "vector", "key-value"])
def test_measured_errors_are_those_of_theory(kind: Kind) -> None:
    """
    Within a factor of two either way, of what is unbiased.

    Seed 11. A mean of squares of normal errors: 150 repeats of one number, 40 of eight, 12 of
    twelve keys. They are nearly independent, as a report tells of one number or key. A chi-square
    of 144 degrees of freedom leaves the factor with probability 9e-8.
    """
    for row in _rows(kind):
        assert row.design is not None
        assert row.mse is not None
        if not row.design.biased:
            assert 0.5 < row.mse.mean / row.mse_theory < 2


def test_errors_of_texts_are_near_those_of_a_rare_one() -> None:
    """
    Within a factor of four: what candidates share with each other is in no theory.

    Seed 11. Some sixty candidates in four repeats; even if only one in two were independent the
    mean of their squares left the factor with probability below 1e-12.
    """
    [row] = _rows("string")

    assert row.mse is not None
    assert 0.25 < row.mse.mean / row.mse_theory < 4


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_every_row_keeps_its_target(kind: Kind) -> None:
    """By the very task that was simulated."""
    for row in _rows(kind):
        assert row.design is not None
        assert row.design.task.central_epsilon <= row.target_epsilon
        assert row.design.task.local_epsilon <= 1.0
        assert _USERS == row.design.task.n_min


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_what_somebody_trusted_would_err_by_stands_beside_it(kind: Kind) -> None:
    """Less than what is measured without trust, for Laplace and for Gaussian noise."""
    for row in _rows(kind):
        assert row.mse is not None
        assert row.mse_central is not None
        assert {"central Laplace", "central Gaussian"} == set(row.mse_central)
        assert all(0 < error < row.mse.mean for error in row.mse_central.values())


def test_a_trusted_party_s_errors_of_means_are_in_the_range_s_units() -> None:
    """Hours from 0 to 24: at ε 1 Laplace noise of scale 24 / n, so about 2 · (24 / n)² squared."""
    found = central_errors(_people("mean"), 1.0, 1e-6)["central Laplace"]

    assert 2 * (24 / _USERS) ** 2 == pytest.approx(found, rel=0.05)


def test_a_trusted_party_s_errors_of_texts_are_those_of_a_histogram() -> None:
    """Exactly the one that items have."""
    found = central_errors(_people("string"), 0.5, 1e-6)

    assert CentralHistogram.laplace(0.5).mse(_USERS) == found["central Laplace"]
    assert CentralHistogram.gaussian(0.5, 1e-6).mse(_USERS) == found["central Gaussian"]


@pytest.mark.parametrize("kind", [_SLOW, "mean", "vector", "key-value"])
def test_the_same_seed_simulates_the_same(kind: Kind) -> None:
    """And another one something else."""
    fields = {"repeats": 1, "protocols": _PROTOCOLS[kind][:1]}
    [first], [again] = _run(_sweep(kind, **fields)), _run(_sweep(kind, **fields))
    [other] = _run(_sweep(kind, **fields, seed=12))

    assert first.mse == again.mse
    assert first.mse != other.mse


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_csv_has_every_field_of_every_row(kind: Kind) -> None:
    """As exact as in JSON; the errors of trusted parties a column each, named as those of items."""
    rows = _rows(kind)
    for row, line in zip(rows, csv.DictReader(io.StringIO(as_csv(rows))), strict=True):
        assert row.mse_central is not None
        assert {name: str(value) for name, value in row.as_json().items()} == line
        assert str(row.mse_central["central Laplace"]) == line["central_laplace_mse"]
        assert str(row.mse_central["central Gaussian"]) == line["central_gaussian_mse"]
        assert not [name for name in line if " " in name]


@pytest.mark.parametrize("kind", ["mean", "vector"])
def test_shrunk_means_have_figures_of_their_own(kind: Kind) -> None:
    """And no other kind has."""
    assert all("mse_shrunk" in row.as_json() for row in _rows(kind))
    assert not any("mse_shrunk" in row.as_json() for row in _rows("key-value"))


def test_a_target_that_nothing_keeps_is_a_row_that_says_so() -> None:
    """In JSON, in CSV with empty cells, and in words; the others are there all the same."""
    sweep = _sweep("key-value", central_epsilons=(0.6, 1e-4), repeats=1)
    kept, refused = _run(sweep)
    console = Console(file=io.StringIO(), width=200)
    show([kept, refused], sweep.people, console)
    [_, line] = csv.DictReader(io.StringIO(as_csv([kept, refused])))

    assert "no local epsilon keeps a central epsilon of 0.0001" in refused.as_json()["refusal"]
    assert ("", refused.refusal) == (line["mse"], line["refusal"])
    assert "priv-kv at 0.0001 is left out" in console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


def test_a_cap_that_is_none_is_refused() -> None:
    """Before anything is simulated."""
    with pytest.raises(PlanError, match="the local cap is 0"):
        _run(_sweep("mean", local_cap=0.0))


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_table_shows_every_protocol_and_the_trusted_party(kind: Kind) -> None:
    """Beside theory, where there is one."""
    console = Console(file=io.StringIO(), width=200)
    show(_rows(kind), _people(kind), console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO

    assert all(name in printed for name in (*_PROTOCOLS[kind], "central Laplace"))
    assert ("For multi-rphm there is no theory" in printed) == (kind == "vector")


def test_rows_are_json() -> None:
    """No figure is a number that JSON does not have."""
    rows = [row.as_json() for kind in OTHER_KINDS for row in _rows(kind)]

    assert rows == json.loads(json.dumps(rows, allow_nan=False))


def test_the_best_row_is_the_one_with_the_least_error() -> None:
    """Of the target that is asked about; none of another."""
    rows = _rows("mean")
    errors = {row.protocol: row.mse.mean for row in rows if row.mse}
    found = best(rows, 0.6)

    assert found is not None
    assert min(errors, key=lambda name: errors[name]) == found.protocol
    assert best(rows, 0.7) is None


def test_progress_is_told_from_nothing_to_all() -> None:
    """A step a row."""
    told: list[tuple[int, int]] = []
    run_kinds(_sweep("mean", repeats=1), lambda done, total: told.append((done, total)))

    assert [(0, 2), (1, 2), (2, 2)] == told
    assert np.isfinite([row.mse_theory for row in _rows("mean")]).all()
