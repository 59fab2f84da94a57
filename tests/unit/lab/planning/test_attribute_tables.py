"""Designs for tables of attributes: exact privacy, stated errors, caps, drafts."""

import dataclasses
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.accounting.guarantees import central_epsilon, claimed_release
from shuffledp.common.errors import PlanError, TaskError
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.deploy.tasks import drafts, task_view
from shuffledp.deploy.tasks.value_parser import parse_tables
from shuffledp.lab.planning import plan_view
from shuffledp.lab.planning.central_mechanisms import gaussian_error, tables_square
from shuffledp.lab.planning.planner import plan
from shuffledp.lab.planning.requirements import Requirements
from tests.support.requirements import designed


def _target(
    sizes: str = "4,3,5", pairs: str = "", *, margins: bool = False, **changes: Any
) -> Requirements:
    tables = parse_tables(sizes, pairs, margins=margins)
    fields: dict[str, Any] = {
        "kind": "table",
        "n_users": 20_000,
        "n_min": changes.get("n_users", 20_000),
        "domain_size": len(tables.attributes),
        "central_epsilon": 1.0,
        "delta": 1e-6,
        "draft_fields": {"tables": tables, **changes.pop("draft_fields", {})},
    }
    return Requirements(**fields | changes)


_STAFF: Final = {"draft_fields": {"population": "staff"}}
_PLANS = [
    pytest.param("tables", {}, id="users"),
    pytest.param("tables", {"margins": True, "honest_fraction": 0.5}, id="margins"),
    pytest.param("tables", {"sizes": "4,3"}, id="one-table"),
    pytest.param("tables", {"rounds": 3, **_STAFF}, id="rounds", marks=pytest.mark.slow),
    pytest.param("tables", {"sizes": "4,3", "n_users": 10_000, "central_epsilon": 2.0}, id="2"),
    pytest.param("tables", {"sizes": "4,3", "n_users": 3000, "central_epsilon": 2.8}, id="2.8"),
    pytest.param("geo-tables", {"trust": "shuffler-dummies", "margins": True}, id="one-shuffler"),
    pytest.param("geo-tables", {"shufflers": 2, "margins": True}, id="two-shufflers"),
    pytest.param("geo-tables", {"shufflers": 2, "coalition_epsilon": 1.2}, id="coalition"),
    pytest.param(
        "geo-tables",
        {"shufflers": 2, "rounds": 4, "coalition_epsilon": 0.5, **_STAFF},
        id="coalition-of-a-round",
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(("protocol", "changes"), _PLANS)
def test_a_design_meets_its_target_and_little_more(protocol: str, changes: dict[str, Any]) -> None:
    """The ε of all rounds and a task's coalition ε are at most the targets; one is nearly there."""
    target = _target(**changes)
    design = designed(protocol, target)
    release = design.parameters.release_of(target.n_min, target.honest, target.honest)
    goals = [(central_epsilon(design.parameters, release), target.central_epsilon)]
    if target.shufflers > 1:
        goals.append((design.task.coalition_epsilon, target.coalition_epsilon))

    assert all(claim <= goal for claim, goal in goals)
    assert max(claim / goal for claim, goal in goals) > 0.99
    assert design.task.central_epsilon <= target.central_epsilon


@pytest.mark.parametrize(
    "changes", [{"sizes": "4,3", "central_epsilon": 5.0}, {"central_epsilon": 5.0}, {"delta": 0.9}]
)
def test_few_dummies_do_not_exceed_the_target(changes: dict[str, Any]) -> None:
    """Where ε falls steeply with δ, the claim at slightly less than δ still meets the target."""
    target = _target(n_users=3000, **changes)

    assert designed("tables", target).task.central_epsilon <= target.central_epsilon


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="users"),
        pytest.param({"margins": True}, id="margins", marks=pytest.mark.slow),
        pytest.param({"shufflers": 2, "margins": True}, id="two-shufflers"),
    ],
)
def test_the_draft_of_a_plan_becomes_the_planned_task(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """It has the same views, and the claims of the plan."""
    target = _target(**changes)
    found = plan(target)
    file = tmp_path / "draft.toml"
    file.write_text(plan_view.draft(found, SystemClock().now()), encoding="utf-8")
    read = drafts.read(file)
    task = task_view.preview(read, now=SystemClock().now())

    assert found.best.task.views == task.views
    assert found.best.task.central_epsilon == task.central_epsilon
    assert found.best.task.coalition_epsilon == task.coalition_epsilon


def test_ten_attributes_with_twenty_values() -> None:
    """602,325 users and ε = 1: errors are within 2 % of the central Gaussian mechanism's."""
    target = _target(",".join(["20"] * 10), n_users=602_325)
    design = designed("tables", target)
    figures, n_users = design.figures, target.n_users

    assert 45 == figures["tables"]
    assert 39.5 <= figures["sd_cell_raw"] <= 41
    assert 38 <= figures["sd_cell"] <= 39.5
    assert 57 <= figures["sd_margin"] <= 60
    assert design.messages_per_user < 95
    assert 1 <= design.ratio_to_central_gaussian <= 1.02
    assert figures["sd_cell"] ** 2 == pytest.approx(n_users**2 * design.mse)


def test_the_known_total_counts_in_every_error() -> None:
    """It is all that least squares know of a single table: they change no error."""
    figures = designed("tables", _target("4,3")).figures

    assert figures["sd_cell_raw"] == pytest.approx(figures["sd_cell"])
    assert figures["sd_margin_raw"] == pytest.approx(figures["sd_margin"])


def test_a_share_of_the_loss_makes_margins_better() -> None:
    """Tables of one attribute take a share of μ²: margins are nearer, and cells further."""
    alone, beside = (
        designed("tables", _target("20,20,20", margins=margins)) for margins in (False, True)
    )
    more = designed("tables", _target("20,20,20", margins=True, margin_share=0.5))
    tables = Tables.of(beside.task)
    raw = {
        size: view.item_variance(20_000)
        for size, view in zip(tables.sizes, tables.views, strict=True)
    }

    assert 6 == beside.figures["tables"]
    # The three tables share .1 of μ², the others .9.
    assert 9 == pytest.approx(raw[20] / raw[400], rel=0.01)
    assert alone.figures["sd_margin"] > beside.figures["sd_margin"] > more.figures["sd_margin"]
    assert alone.figures["sd_cell"] < beside.figures["sd_cell"] < more.figures["sd_cell"]


def test_chosen_pairs_cost_less_than_all() -> None:
    """One of three pairs, with the third attribute alone, has fewer dummies and less error."""
    every, chosen = (designed("tables", _target(pairs=pairs)) for pairs in ("", "1:2,3"))

    assert ((0, 1), (2,)) == Tables.of(chosen.task).tables
    assert chosen.messages_per_user < every.messages_per_user
    assert chosen.figures["sd_cell_raw"] < every.figures["sd_cell_raw"]


@pytest.mark.parametrize(
    ("protocol", "changes", "words"),
    [
        (
            "tables",
            {"messages_cap": 3.01},
            r"cap is 3.01: one for each table \(fewer with fewer pairs\), and",
        ),
        ("tables", {"bytes_cap": 200}, "bytes per user; the bytes cap is 200"),
        ("tables", {"influence_cap": 3}, "users moved by one submission"),
        ("tables", {"local_cap": 4.0}, "tables has no local noise, so it needs local_cap=math.inf"),
        ("tables", {"shufflers": 2}, "two shufflers add their own"),
        ("geo-tables", {}, "needs trust=shuffler-dummies instead of anonymity"),
    ],
)
def test_caps_and_trust_refuse_a_plan(protocol: str, changes: dict[str, Any], words: str) -> None:
    """The message names the cap or what is missing."""
    with pytest.raises(PlanError, match=words):
        designed(protocol, _target(**changes))


def test_a_table_of_three_attributes_is_refused() -> None:
    """The message says what to ask for instead."""
    with pytest.raises(TaskError, match="ask for every pair of them, or join two"):
        designed("tables", _target(pairs="1:2:3"))


def test_central_gaussian_noise_has_the_sensitivity_of_all_tables() -> None:
    """Its error is that of the same least squares on noise of variance 2·V/μ² in each cell."""
    spec = Tables.specify(parse_tables("20,20,20"))
    mu, r, k = 0.236704, 20, 3
    of_cell = ((r - 1) ** 2 / r**2 + 2 * (r - 1) / (r**2 * (k - 1))) * 2 * k / mu**2

    found = gaussian_error(tables_square(spec), 100_000, 1.0, 1e-6)
    assert of_cell / 1e10 == pytest.approx(found, rel=1e-4)


def test_the_plan_states_all_errors() -> None:
    """The sentence and the JSON fields have them."""
    design = designed("tables", _target())
    shown = plan_view.to_json(dataclasses.replace(plan(_target()), best=design))

    assert f"{design.figures['sd_cell']:.4g}" in design.kind.sentence.format(**design.figures)
    assert design.figures.items() <= shown.items()
    assert np.isfinite([*design.figures.values()]).all()
    released = claimed_release(design.task, design.target.n_min)
    assert math.isfinite(released.epsilon(1e-6))
