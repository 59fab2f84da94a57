"""Plans for ordered buckets."""

import dataclasses
import math
from typing import Final

import numpy as np
import pytest

from shuffledp.common.accounting.composition import _release_curve
from shuffledp.common.errors import PlanError
from shuffledp.common.mechanisms.base import Mixture
from shuffledp.common.mechanisms.covariance import ShareCovariance
from shuffledp.common.mechanisms.hierarchy import Hierarchy
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.task.domain_spec import BreakdownSpec, EdgesSpec
from shuffledp.lab.planning.blankets import Blankets
from shuffledp.lab.planning.clusters import Clusters
from shuffledp.lab.planning.planner import plan
from shuffledp.lab.planning.protocol_family import FamilyDesigns
from shuffledp.lab.planning.requirements import Requirements
from tests.support.requirements import designed

_BUCKETS: Final = 16
_TARGET: Final = Requirements(
    kind="ordered",
    n_users=20_000,
    n_min=10_000,
    domain_size=_BUCKETS,
    central_epsilon=2.0,
    delta=1e-6,
    draft_fields={"edges": EdgesSpec(low=0.0, high=1.0, buckets=_BUCKETS)},
)


@pytest.mark.slow
def test_a_hierarchy_meets_its_target_with_hardly_any_room() -> None:
    """Its task claims at most the target, and at least 98.5 % of it."""
    design = designed("hierarchy", _TARGET)
    hierarchy = mechanism_of(design.task)
    assert isinstance(hierarchy, Hierarchy)

    assert 0.985 * 2.0 <= design.task.central_epsilon <= 2.0
    assert design.mse == pytest.approx(hierarchy.prefix_variances(20_000).mean())
    assert design.messages_per_user == pytest.approx(design.task.expected_reports_per_user)
    assert design.influence == (design.task.lengths[-1],) * 2


@pytest.mark.slow
def test_the_hierarchy_has_the_least_error_of_a_prefix_in_a_plan() -> None:
    """Designs are sorted by it; the draft of the plan has the edges and is for one group."""
    breakdown = BreakdownSpec(attribute="version", groups=("1", "2"))
    edges = EdgesSpec(low=0.0, high=1.0, buckets=64)
    target = dataclasses.replace(_TARGET, domain_size=128, prefix="worst")
    fields = {"edges": edges, "breakdown": breakdown}
    found = plan(dataclasses.replace(target, draft_fields=fields))

    errors = [design.mse for design in (found.best, *found.runners_up)]
    assert errors == sorted(errors)
    assert found.best.protocol == "hierarchy"
    runners_up = {design.protocol for design in found.runners_up}
    assert {"signed", "puredump"} <= runners_up | found.left_out.keys()
    assert "hierarchy" not in found.left_out
    assert (64, breakdown) == (found.best.draft.domain_size, found.best.draft.breakdown)


@pytest.mark.parametrize("protocol", ["puredump", "murs"])
def test_a_flat_design_predicts_the_error_of_a_prefix(protocol: str) -> None:
    """It is exact for items; for hashing, within 25 % of the exact average."""
    design = designed(protocol, _TARGET)
    sent = 20_000 * design.task.expected_reports_per_user
    uniform = np.full(_BUCKETS, 1 / _BUCKETS)
    mixture = Mixture(n_real=20_000, n_dummies=sent - 20_000)
    exact = ShareCovariance.of(design.task, uniform, mixture).of_prefixes()

    assert design.mse == pytest.approx(exact.mean(), rel=0.25 if design.draft.buckets else 1e-3)


def test_a_local_cap_or_a_small_cap_of_messages_leaves_no_hierarchy() -> None:
    """The reason is stated."""
    with pytest.raises(PlanError, match="hierarchy has no local noise"):
        designed("hierarchy", dataclasses.replace(_TARGET, local_cap=4.0))
    with pytest.raises(PlanError, match=r"hierarchy needs .* messages per user; the caps allow"):
        designed("hierarchy", dataclasses.replace(_TARGET, messages_cap=1.01))


@pytest.mark.slow
def test_flat_histograms_far_behind_the_hierarchy_are_left_out_with_their_error() -> None:
    """Of 1,024 buckets, none is calibrated; the few calls of the accountant are the hierarchy's."""
    edges = EdgesSpec(low=0.0, high=1.0, buckets=1024)
    target = dataclasses.replace(
        _TARGET, domain_size=1024, central_epsilon=1.0, draft_fields={"edges": edges}
    )
    named, before = list[str](), _release_curve.cache_info().misses
    found = plan(target, named.append)
    evaluated = _release_curve.cache_info().misses - before

    assert "hierarchy" == found.best.protocol
    assert "its mean squared error of a share would be about" in found.left_out["puredump"]
    assert {"hierarchy", "puredump", "signed"} <= set(named)
    assert evaluated <= 2 * found.best.task.own_reports + 1


def test_a_hierarchy_is_planned_although_no_flat_design_keeps_the_caps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a hierarchy either, there is no plan."""

    def none_allowed(*_: object) -> FamilyDesigns:
        return FamilyDesigns(refusals={"sh": PlanError("the influence cap is 1")})

    for family in (Blankets, Clusters):
        monkeypatch.setattr(family, "designs", none_allowed)
    found = plan(_TARGET)

    assert ("hierarchy", ()) == (found.best.protocol, found.runners_up)
    assert "the influence cap is 1" == found.left_out["sh"]
    with pytest.raises(PlanError, match="hierarchy has no local noise"):
        plan(dataclasses.replace(_TARGET, local_cap=1.0))


@pytest.mark.slow
def test_a_plan_says_why_it_has_no_hierarchy() -> None:
    """The reason stands beside the designs of other protocols."""
    left_out = plan(dataclasses.replace(_TARGET, local_cap=4.0)).left_out
    assert "no local noise" in left_out["hierarchy"]


@pytest.mark.slow
def test_several_rounds_share_the_target() -> None:
    """Ten rounds together meet it, and need more dummies than one."""
    target = dataclasses.replace(_TARGET, rounds=10, n_users=200_000, n_min=200_000)
    one, ten = (designed("hierarchy", dataclasses.replace(target, rounds=each)) for each in (1, 10))

    assert one.messages_per_user < ten.messages_per_user
    assert one.task.central_epsilon == pytest.approx(2.0, rel=0.01)
    assert ten.task.central_epsilon < 1
    assert math.isfinite(plan(target).central_guarantee.epsilon)
    assert plan(target).central_guarantee.epsilon <= 2.0
