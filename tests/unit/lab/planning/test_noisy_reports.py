"""Plans for texts, numbers and pairs: their tasks meet the target and use it up."""

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest

from shuffledp.common.errors import PlanError, TaskError
from shuffledp.common.mechanisms.registry import mean_mechanism_of, randomizer_of
from shuffledp.common.protocols import Kind, protocol_named
from shuffledp.common.task.draft import NumberDraft, TextDraft
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.specs import RapporSpec
from shuffledp.lab.planning.design import Design
from shuffledp.lab.planning.planner import Plan, plan
from shuffledp.lab.planning.predictions import predicted_mse
from tests.support.kind_tasks import NOISY_KINDS, noisy_protocols
from tests.support.requirements import designed, value_requirements


@cache
def _capped(kind: Kind) -> Plan:
    """Plan with a local cap that meets the target at once, which is quick."""
    return plan(value_requirements(kind, local_cap=0.75))


@cache
def _design(protocol: str, central_epsilon: float) -> Design:
    """Search without a cap, for few users, which is quicker."""
    kind = protocol_named(protocol).kind
    target = value_requirements(kind, n_users=500, central_epsilon=central_epsilon)
    return designed(protocol, target)


@pytest.mark.parametrize("kind", NOISY_KINDS)
def test_every_design_keeps_the_guarantee_and_uses_the_cap(kind: Kind) -> None:
    """The task's claim is for n_min users; unbiased designs come first, then smaller errors."""
    found = _capped(kind)
    designs = (found.best, *found.runners_up)

    assert set(noisy_protocols(kind)) == {design.protocol for design in designs}
    for design in designs:
        assert design.task.central_epsilon <= 0.5
        assert 0.7 < design.local_epsilon <= 0.75
        assert randomizer_of(design.task).keeps_promise(design.local_epsilon)
        assert (4000, 5000) == (design.task.n_min, design.task.target_size)
    order = [(each.biased, each.mse) for each in designs]
    assert order == sorted(order)
    assert not order[0][0]
    assert found.central_guarantee.epsilon <= designs[0].task.central_epsilon
    assert found.central_guarantee in found.guarantees


@pytest.mark.parametrize("protocol", [pytest.param("duchi", marks=pytest.mark.slow), "priv-kv"])
def test_without_a_cap_the_guarantee_is_used_up(protocol: str) -> None:
    """The claim is within a twentieth; a weaker guarantee never has a larger error."""
    assert 0.95 * 0.5 < _design(protocol, 0.5).task.central_epsilon <= 0.5
    errors = [predicted_mse(_design(protocol, epsilon).task, 500) for epsilon in (0.25, 0.5)]
    assert errors[0] >= errors[1]


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "vector")) for kind in NOISY_KINDS],
)
def test_no_design_keeps_an_impossible_guarantee(kind: Kind) -> None:
    """Ten users cannot reach the target; the message says what to change."""
    with pytest.raises(PlanError, match="more users, a larger epsilon or a larger delta"):
        plan(value_requirements(kind, n_users=10, central_epsilon=1e-4))


@pytest.mark.slow
def test_a_protocol_without_a_possible_task_is_skipped() -> None:
    """A projection of 4,000 numbers is too large; the other protocols have plans."""
    found = plan(value_requirements("vector", domain_size=4000, local_cap=1.0))
    planned = {each.protocol for each in (found.best, *found.runners_up)}

    assert set(noisy_protocols("vector")) - {"multi-rphm"} == planned
    assert "their product may be at most" in found.left_out["multi-rphm"]
    with pytest.raises(TaskError, match="domain_size is 8193"):
        plan(value_requirements("vector", domain_size=8193))


def test_an_error_is_in_the_units_of_the_range_and_falls_with_the_users() -> None:
    """A range twelve times as wide has 144 times the squared error."""
    narrow, wide = (
        designed("duchi", value_requirements(local_cap=1.0, draft_fields=fields)).task
        for fields in ({}, {"numbers": NumberDraft(low=0.0, high=24.0)})
    )

    assert 144 * predicted_mse(narrow, 5000) == pytest.approx(predicted_mse(wide, 5000))
    assert predicted_mse(narrow, 1000) == pytest.approx(4 * predicted_mse(narrow, 4000))


@pytest.mark.parametrize("protocol", [*noisy_protocols("mean"), "harmony", "mean-est", "multi-hm"])
def test_the_error_of_a_mean_is_that_of_the_worst_values(protocol: str) -> None:
    """No value that all users share has a larger one, to the rounding of the numbers."""
    kind: Kind = "mean" if protocol in noisy_protocols("mean") else "vector"
    design = designed(protocol, value_requirements(kind, local_cap=0.75))
    mechanism, size = mean_mechanism_of(design.unclaimed), design.target.domain_size
    places = np.linspace(-1, 1, 101)
    errors = [mechanism.variance(np.full((1, size), place)).mean() / 5000 for place in places]

    assert max(errors) == pytest.approx(design.mse, rel=1e-5)


def _rappor(**changes: Any) -> Design:
    return designed("rappor", value_requirements("string", **changes))


@pytest.mark.slow
@pytest.mark.parametrize(("central", "cap"), [(3.0, 8.0), (0.5, 4.0), (0.05, 4.0)])
def test_texts_use_up_a_cap(central: float, cap: float) -> None:
    """One of the caps binds within 3 %, and no other f has an error 10 % smaller."""
    found = _rappor(central_epsilon=central, local_cap=cap)
    used = max(found.task.central_epsilon / central, found.local_epsilon / cap)

    assert 0.97 <= used <= 1
    for permanent in (0.05, 0.25, 0.5):
        texts = {"texts": TextDraft(permanent=permanent)}
        other = _rappor(central_epsilon=central, local_cap=cap, draft_fields=texts)
        assert predicted_mse(found.task, 5000) <= 1.1 * predicted_mse(other.task, 5000)


def test_stated_labels_and_permanent_noise_are_kept() -> None:
    """Labels have one bit each; for a stated f, only the instantaneous noise is chosen."""
    texts = TextDraft(permanent=0.75, hashes=2, cohorts=8)
    found = _rappor(draft_fields={"texts": texts}, central_epsilon=20.0)
    labels = {"labels": ("a", "b", "c")}
    labelled = _rappor(domain_size=3, local_cap=0.75, draft_fields=labels)

    assert found.draft.texts == dataclasses.replace(texts, unset=0.0, set=1.0)
    assert 3 == spec_as(labelled.task.mechanism, RapporSpec).bits
