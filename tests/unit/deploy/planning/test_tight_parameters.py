import dataclasses
import math
from typing import Any, Final

import pytest

from common.accounting.guarantees import central_epsilon
from common.errors import PlanError
from common.protocols import PROTOCOLS, protocols_of
from deploy.planning.design import Design
from deploy.planning.parameters import Parameters
from deploy.planning.planner import central_gaussian_mse
from deploy.planning.requirements import Wishes
from deploy.planning.shuffler_noise import sageo_design, sbin_design, shuffler_designs
from deploy.planning.tight_parameters import tight_parameters
from deploy.simulate.sweep import task_of

_CITIES: Final = {"n_users": 602_325, "domain_size": 915}
_AMPLIFIED: Final = [name for name in protocols_of("categorical") if PROTOCOLS[name].amplified]

_LIKE_ANOTHER: Final = {"hp-sdp", "fe1", "puredump", "mixdump"}
"""Searched for as MURS, OD-HP and SH are."""


def _wishes(**changes: Any) -> Wishes:
    fields: dict[str, Any] = {
        "n_users": 5000,
        "domain_size": 30,
        "central_epsilon": 0.5,
        "delta": 1e-6,
        "trust": "shuffler-dummies",
    } | changes
    return Wishes(**{"n_min": fields["n_users"]} | fields)


def _predicted(found: Parameters, wishes: Wishes) -> float:
    """Predicted error of parameters of a protocol whose dummies the shuffler or nobody draws."""
    design = Design(
        protocol=found.protocol,
        answers=found.buckets or wishes.domain_size,
        hashed=found.buckets > 0,
        local_epsilon=found.local_epsilon,
        dummies_per_user=found.dummies.expected_per_user,
        shuffler=found.shuffler,
    )
    return design.mse(wishes.n_users, wishes.domain_size)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"central_epsilon": 1.5, "delta": 1e-9}, marks=pytest.mark.slow),
    ],
    ids=["at .5", "at 1.5"],
)
@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(name, marks=pytest.mark.slow if name in _LIKE_ANOTHER else ())
        for name in _AMPLIFIED
        if name != "ddps"
    ],
)
def test_a_task_claims_the_target_and_hardly_less(protocol: str, changes: dict[str, Any]) -> None:
    """95 to 100 % of it, by the very claim that its task is published with."""
    wishes = _wishes(**changes)
    claimed = task_of(tight_parameters(protocol, wishes), wishes).central_epsilon

    assert 0.95 * wishes.central_epsilon < claimed <= wishes.central_epsilon


@pytest.mark.parametrize(
    "protocol", ["ddps", "murs", pytest.param("od-hp", marks=pytest.mark.slow)]
)
def test_a_bit_is_collected_plain(protocol: str) -> None:
    """There is nothing to hash two items to; the claim is as tight."""
    wishes = _wishes(domain_size=2)
    found = tight_parameters(protocol, wishes)

    assert 0 == found.buckets
    assert 0.95 * 0.5 < task_of(found, wishes).central_epsilon <= 0.5


@pytest.mark.parametrize("protocol", [pytest.param("mixdump", marks=pytest.mark.slow), "od-hp"])
def test_where_there_may_be_no_dummies_the_report_alone_is_noisy(protocol: str) -> None:
    """A messages cap of one leaves SH or MURS of these protocols."""
    wishes = _wishes(messages_cap=1.0)
    found = tight_parameters(protocol, wishes)

    assert 0 == found.dummies.maximum
    assert 0.95 * 0.5 < task_of(found, wishes).central_epsilon <= 0.5


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_sageo_has_the_error_of_the_central_laplace_mechanism(epsilon: float) -> None:
    """8/(εn)², within 3 %: two geometric flanks of ratio e^-ε/2."""
    wishes = _wishes(central_epsilon=epsilon, **_CITIES)
    laplace = 8 / (epsilon * 602_325) ** 2

    assert laplace == pytest.approx(_predicted(tight_parameters("sageo", wishes), wishes), rel=0.03)


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_puredump_has_the_error_of_the_central_gaussian_mechanism(epsilon: float) -> None:
    """Within 5 % where dummies are many; its multinomial noise is as good as Gaussian."""
    wishes = _wishes(central_epsilon=epsilon, **_CITIES)
    found = tight_parameters("puredump", wishes)

    assert central_gaussian_mse(wishes) == pytest.approx(_predicted(found, wishes), rel=0.05)


@pytest.mark.parametrize(("rounds", "sharper"), [(1, "sageo"), (10, "sbin")])
def test_geometric_noise_wins_one_round_and_coins_win_ten(rounds: int, sharper: str) -> None:
    """Losses of fair coins add like Gaussians'; those of flanks begin at their worst."""
    wishes = _wishes(central_epsilon=1.0, rounds=rounds)
    errors = {
        design.protocol: design.mse(wishes.n_users, wishes.domain_size)
        for design in (sageo_design(wishes), sbin_design(wishes))
    }

    assert sharper == min(errors, key=errors.__getitem__)


def test_over_rounds_the_promise_is_that_of_all_together() -> None:
    """Of every design that is found, composed, and not far below it."""
    wishes = _wishes(central_epsilon=1.0, rounds=4, delta=1e-5)
    for design in (sageo_design(wishes), sbin_design(wishes)):
        terms = design.terms(wishes)
        together = central_epsilon(terms, terms.crowd(wishes.n_min))
        assert 0.95 < together <= 1


def test_a_cap_on_the_local_epsilon_leaves_the_hybrid() -> None:
    """Reports without noise are out; without a cap all three are found."""
    capped = shuffler_designs(_wishes(local_cap=2.0))
    free = shuffler_designs(_wishes())

    assert ["hybrid"] == [each.design.protocol for each in capped]
    assert [2.0] == [each.design.local_epsilon for each in capped]
    assert {"hybrid", "sageo", "sbin"} == {each.design.protocol for each in free}


@pytest.mark.parametrize(
    "protocol",
    [
        "sh",
        pytest.param("murs", marks=pytest.mark.slow),
        pytest.param("mixdump", marks=pytest.mark.slow),
        "od-hp",
        "hybrid",
    ],
)
def test_no_report_passes_a_cap_on_the_local_epsilon(protocol: str) -> None:
    """And the target is kept as before."""
    wishes = _wishes(local_cap=2.0)
    found = tight_parameters(protocol, wishes)

    assert found.local_epsilon <= 2.0
    assert task_of(found, wishes).central_epsilon <= 0.5


@pytest.mark.parametrize("protocol", ["aue", "sbin", "sageo"])
def test_reports_without_noise_are_refused_under_such_a_cap(protocol: str) -> None:
    """Whatever hides them: without the others nothing would."""
    with pytest.raises(
        PlanError, match=f"{protocol} reports without local noise; the local cap is 2"
    ):
        tight_parameters(protocol, _wishes(local_cap=2.0))


def test_only_honest_users_are_counted() -> None:
    """Half of them need twice the dummies each; the claim is that of the half."""
    all_, half = _wishes(), _wishes(honest_fraction=0.5)
    many, few = (tight_parameters("puredump", each) for each in (half, all_))

    assert 2 * few.dummies.expected_per_user == pytest.approx(
        many.dummies.expected_per_user, rel=0.05
    )
    assert task_of(many, half).central_epsilon <= 0.5


def test_more_dummies_than_messages_allow_are_refused() -> None:
    """Those of AUE have no other noise to be traded for."""
    wishes = _wishes()
    messages = 1 + tight_parameters("aue", wishes).dummies.expected_per_user
    capped = dataclasses.replace(wishes, messages_cap=messages - 0.1)

    with pytest.raises(PlanError, match=f"aue would take {messages:.4g} messages a user"):
        tight_parameters("aue", capped)
    with pytest.raises(PlanError, match=r"puredump cannot keep a central epsilon of 0\.1 "):
        tight_parameters("puredump", _wishes(central_epsilon=0.1, messages_cap=2.0))


def test_what_no_parameters_keep_is_refused() -> None:
    """A domain that is no bit; a crowd too small for AUE's dummies; a cap that nothing fits."""
    with pytest.raises(PlanError, match="ddps collects a bit; the domain size is 30"):
        tight_parameters("ddps", _wishes())
    with pytest.raises(PlanError, match=r"aue cannot keep a central epsilon of 0\.1 with 20"):
        tight_parameters("aue", _wishes(n_users=20, central_epsilon=0.1))
    with pytest.raises(PlanError, match=r"fe1 cannot keep .* a local epsilon of at most 2"):
        tight_parameters("fe1", _wishes(local_cap=2.0))


def test_without_a_shuffler_the_target_is_the_local_epsilon() -> None:
    """The exact accountant has nothing to add."""
    found = tight_parameters("ldp-sue", _wishes())

    assert (0.5, 0) == (found.local_epsilon, found.dummies.maximum)
    assert math.isfinite(found.local_epsilon)
