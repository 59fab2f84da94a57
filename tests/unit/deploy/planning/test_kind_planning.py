import dataclasses
import math
from functools import cache
from typing import Any, Final

import pytest

from analyzer.task_builder import complete
from common.errors import PlanError, TaskError
from common.mechanisms.registry import randomizer_of
from common.protocols import Kind, protocol_named, protocols_of
from common.task.draft import NumberDraft, TextDraft
from deploy.planning.kind_planning import (
    KindDesign,
    KindPlan,
    KindWishes,
    design_of,
    plan_kind,
    predicted_mse,
)
from tests.support.kind_tasks import OTHER_KINDS

_SIZES: Final[dict[Kind, int]] = {"string": 1, "mean": 1, "vector": 3, "key-value": 3}


def _wishes(kind: Kind = "mean", **changes: Any) -> KindWishes:
    fields: dict[str, Any] = {
        "kind": kind,
        "n_users": 5000,
        "n_min": 4000,
        "central_epsilon": 0.5,
        "delta": 1e-6,
        "size": _SIZES.get(kind, 2),
    }
    return KindWishes(**fields | changes)


@cache
def _capped(kind: Kind) -> KindPlan:
    """Plan with a local cap that is the first tried, and is kept: which is quick."""
    return plan_kind(_wishes(kind, local_cap=0.75))


@cache
def _design(protocol: str, central_epsilon: float) -> KindDesign:
    """Search without a cap, for few users, which is quicker."""
    kind = protocol_named(protocol).kind
    wishes = _wishes(kind, n_users=500, n_min=500, central_epsilon=central_epsilon)
    return design_of(protocol, wishes)


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_every_design_keeps_the_promise(kind: Kind) -> None:
    """The claim of the very task, for n_min users; and its mechanism what it claims alone."""
    plan = _capped(kind)
    designs = (plan.best, *plan.runners_up)

    assert set(protocols_of(kind)) == {design.draft.protocol for design in designs}
    for design in designs:
        assert design.task.central_epsilon <= 0.5
        assert max(one.epsilon for one in design.guarantees if one.coalition == "analyzer") <= 0.5
        assert randomizer_of(design.task).keeps_promise(design.task.local_epsilon)
        assert (4000, 5000) == (design.task.n_min, design.task.target_size)


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_local_cap_binds(kind: Kind) -> None:
    """What devices would not answer is not planned; what they would is used."""
    plan = _capped(kind)
    for design in (plan.best, *plan.runners_up):
        assert 0.7 < design.task.local_epsilon <= 0.75


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_the_best_is_unbiased_and_has_the_least_error(kind: Kind) -> None:
    """What a projection leaves out is not predicted: it comes last, whatever its error."""
    plan = _capped(kind)
    order = [(design.biased, design.mse) for design in (plan.best, *plan.runners_up)]

    assert order == sorted(order)
    assert not plan.best.biased


@pytest.mark.parametrize("protocol", [pytest.param("duchi", marks=pytest.mark.slow), "priv-kv"])
def test_the_promise_is_used_up(protocol: str) -> None:
    """
    A design's claim is within a twentieth of what was asked, where no cap binds.

    RAPPOR's permanent noise is one: without any other there may be room left.
    """
    assert 0.95 * 0.5 < _design(protocol, 0.5).task.central_epsilon <= 0.5


@pytest.mark.parametrize("protocol", [pytest.param("duchi", marks=pytest.mark.slow), "priv-kv"])
def test_a_larger_promise_gives_no_larger_error(protocol: str) -> None:
    """More ε, and never a worse plan."""
    assert _design(protocol, 0.25).mse >= _design(protocol, 0.5).mse


def test_more_noise_that_is_drawn_anew_gives_a_larger_error_of_texts() -> None:
    """What a cap takes from RAPPOR it takes from the instantaneous response."""
    looser, tighter = (design_of("rappor", _wishes("string", local_cap=cap)) for cap in (0.75, 0.5))

    assert looser is not None
    assert tighter is not None
    assert looser.mse < tighter.mse


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_nothing_keeps_an_impossible_promise(kind: Kind) -> None:
    """Ten people do not hide each other; the message says what would do."""
    with pytest.raises(PlanError, match="more users, a larger epsilon or a larger delta"):
        plan_kind(_wishes(kind, n_users=10, n_min=10, central_epsilon=1e-4))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"kind": "categorical"}, "items are planned for by their own rules"),
        ({"central_epsilon": 0.0}, "central_epsilon is 0"),
        ({"central_epsilon": math.nan}, "central_epsilon is nan"),
        ({"central_epsilon": math.inf}, "central_epsilon is inf; it must lie between 1e-06 and 1"),
        ({"central_epsilon": 101.0}, "central_epsilon is 101"),
        ({"delta": 0.0}, "delta is 0"),
        ({"delta": 1.0}, "delta is 1"),
        ({"n_min": 0}, "n_min is 0 and users is 5000"),
        ({"n_min": 5001}, "n_min is 5001 and users is 5000"),
        ({"local_cap": 0.001}, "the local cap is 0.001"),
        ({"local_cap": math.nan}, "the local cap is nan"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(changes: Any, rule: str) -> None:
    """By the number that breaks a rule."""
    with pytest.raises(PlanError, match=rule):
        _wishes(**changes)


def test_a_protocol_that_has_no_such_task_is_left_out() -> None:
    """Projections of 4,000 numbers would be too large; the others are not refused with them."""
    wishes = _wishes("vector", size=4000, local_cap=1.0)
    found = plan_kind(wishes)
    with pytest.raises(TaskError, match="their product may be at most"):
        design_of("multi-rphm", wishes)

    planned = {design.draft.protocol for design in (found.best, *found.runners_up)}
    assert set(protocols_of("vector")) - {"multi-rphm"} == planned
    assert "their product may be at most" in found.left_out["multi-rphm"]


def test_wishes_that_no_protocol_has_a_task_for_are_refused_by_the_rule() -> None:
    """Of the first."""
    with pytest.raises(TaskError, match="domain_size is 8193"):
        plan_kind(_wishes("vector", size=8193))


def test_an_error_is_in_the_units_of_the_range() -> None:
    """A range twelve times as wide has 144 times the squared error."""
    wide = _wishes("mean", fields={"numbers": NumberDraft(low=0.0, high=24.0)}, local_cap=1.0)
    narrow, twelvefold = (
        design_of("duchi", _wishes("mean", local_cap=1.0)),
        design_of("duchi", wide),
    )

    assert narrow is not None
    assert twelvefold is not None
    assert 144 * narrow.mse == pytest.approx(twelvefold.mse)


def test_an_error_falls_with_the_users() -> None:
    """In proportion, of the same task."""
    task = _capped("mean").best.task

    assert predicted_mse(task, 1000) == pytest.approx(4 * predicted_mse(task, 4000))


@pytest.mark.slow
def test_labels_are_planned_with_a_bit_each() -> None:
    """Basic RAPPOR, without a word of how many bits."""
    wishes = _wishes("string", size=3, fields={"labels": ("a", "b", "c")})
    design = design_of("rappor", wishes)

    assert 3 == design.task.mechanism.bits  # type: ignore[union-attr]  # RAPPOR's


@pytest.mark.parametrize(
    ("central", "cap"),
    [
        pytest.param(3.0, 8.0, marks=pytest.mark.slow),
        pytest.param(0.5, 4.0, marks=pytest.mark.slow),
        pytest.param(0.05, 4.0, marks=pytest.mark.slow),
    ],
)
def test_texts_use_what_is_allowed(central: float, cap: float) -> None:
    """
    With no word on permanent noise, one of the two caps binds, to a hundredth or f's next step.

    And no filter of another f that keeps the promise errs by a tenth less.
    """
    wishes = _wishes("string", central_epsilon=central, local_cap=cap)
    design = design_of("rappor", wishes)
    used = max(design.task.central_epsilon / central, design.task.local_epsilon / cap)

    assert 0.97 <= used <= 1
    for permanent in (0.05, 0.25, 0.5):
        texts = {"texts": TextDraft(permanent=permanent)}
        other = design_of("rappor", dataclasses.replace(wishes, fields=texts))
        assert design.mse <= 1.1 * other.mse


def test_permanent_noise_stays_as_it_was_asked_for() -> None:
    """Only what is drawn anew is chosen; less than the permanent noise leaves is not given away."""
    texts = TextDraft(permanent=0.75, hashes=2, cohorts=8)
    design = design_of("rappor", _wishes("string", fields={"texts": texts}, central_epsilon=20.0))

    assert design.draft.texts == dataclasses.replace(texts, unset=0.0, set=1.0)


def test_the_draft_of_a_plan_makes_the_same_claim_again() -> None:
    """It is what was judged, and not a rounding of it."""
    best = _capped("key-value").best
    again = complete(best.draft, analyzer_key=best.task.analyzer_key, nonce=bytes(32))

    assert best.task == again
