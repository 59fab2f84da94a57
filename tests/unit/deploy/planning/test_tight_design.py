import dataclasses
from typing import Any, Final

import pytest

from common.accounting.guarantees import central_epsilon
from common.errors import PlanError
from common.protocols import PROTOCOLS, protocols_of
from deploy.planning.design import Design
from deploy.planning.planner import central_gaussian_mse
from deploy.planning.requirements import Requirements
from deploy.planning.shuffler_noise import shuffler_design, shuffler_designs
from deploy.planning.tight_design import tight_design
from deploy.simulate.sweep import task_of

_CITIES: Final = {"n_users": 602_325, "domain_size": 915}
_AMPLIFIED: Final = [name for name in protocols_of("categorical") if PROTOCOLS[name].amplified]

_LIKE_ANOTHER: Final = {"hp-sdp", "fe1", "puredump", "mixdump"}
"""Searched for as MURS, OD-HP and SH are."""


def _wanted(**changes: Any) -> Requirements:
    fields: dict[str, Any] = {
        "n_users": 5000,
        "domain_size": 30,
        "central_epsilon": 0.5,
        "delta": 1e-6,
        "trust": "shuffler-dummies",
    } | changes
    return Requirements(**{"n_min": fields["n_users"]} | fields)


def _predicted(found: Design, wanted: Requirements) -> float:
    return found.mse(wanted.n_users, wanted.domain_size)


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
    wanted = _wanted(**changes)
    claimed = task_of(tight_design(protocol, wanted), wanted).central_epsilon

    assert 0.95 * wanted.central_epsilon < claimed <= wanted.central_epsilon


@pytest.mark.parametrize(
    "protocol", ["ddps", "murs", pytest.param("od-hp", marks=pytest.mark.slow)]
)
def test_a_bit_is_collected_plain(protocol: str) -> None:
    """There is nothing to hash two items to; the claim is as tight."""
    wanted = _wanted(domain_size=2)
    found = tight_design(protocol, wanted)

    assert 0 == found.buckets
    assert 0.95 * 0.5 < task_of(found, wanted).central_epsilon <= 0.5


@pytest.mark.parametrize("protocol", [pytest.param("mixdump", marks=pytest.mark.slow), "od-hp"])
def test_where_there_may_be_no_dummies_the_report_alone_is_noisy(protocol: str) -> None:
    """A messages cap of one leaves SH or MURS of these protocols."""
    wanted = _wanted(messages_cap=1.0)
    found = tight_design(protocol, wanted)

    assert 0 == found.dummy_spec.maximum
    assert 0.95 * 0.5 < task_of(found, wanted).central_epsilon <= 0.5


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_sageo_has_the_error_of_the_central_laplace_mechanism(epsilon: float) -> None:
    """8/(εn)², within 3 %: two geometric flanks of ratio e^-ε/2."""
    wanted = _wanted(central_epsilon=epsilon, **_CITIES)
    laplace = 8 / (epsilon * 602_325) ** 2

    assert laplace == pytest.approx(_predicted(tight_design("sageo", wanted), wanted), rel=0.03)


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_puredump_has_the_error_of_the_central_gaussian_mechanism(epsilon: float) -> None:
    """Within 5 % where dummies are many; its multinomial noise is as good as Gaussian."""
    wanted = _wanted(central_epsilon=epsilon, **_CITIES)
    found = tight_design("puredump", wanted)

    assert central_gaussian_mse(wanted) == pytest.approx(_predicted(found, wanted), rel=0.05)


@pytest.mark.parametrize(("rounds", "sharper"), [(1, "sageo"), (10, "sbin")])
def test_geometric_noise_wins_one_round_and_coins_win_ten(rounds: int, sharper: str) -> None:
    """Losses of fair coins add like Gaussians'; those of flanks begin at their worst."""
    wanted = _wanted(central_epsilon=1.0, rounds=rounds)
    errors = {
        design.protocol: design.mse(wanted.n_users, wanted.domain_size)
        for design in (shuffler_design("sageo", wanted), shuffler_design("sbin", wanted))
    }

    assert sharper == min(errors, key=errors.__getitem__)


def test_over_rounds_the_promise_is_that_of_all_together() -> None:
    """Of every design that is found, composed, and not far below it."""
    wanted = _wanted(central_epsilon=1.0, rounds=4, delta=1e-5)
    for design in (shuffler_design("sageo", wanted), shuffler_design("sbin", wanted)):
        terms = design.terms(wanted)
        together = central_epsilon(terms, terms.crowd(wanted.n_min))
        assert 0.95 < together <= 1


def test_a_cap_on_the_local_epsilon_leaves_the_hybrid() -> None:
    """Reports without noise are out; without a cap all three are found."""
    capped = shuffler_designs(_wanted(local_cap=2.0))
    free = shuffler_designs(_wanted())

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
    wanted = _wanted(local_cap=2.0)
    found = tight_design(protocol, wanted)

    assert found.local_epsilon <= 2.0
    assert task_of(found, wanted).central_epsilon <= 0.5


def test_only_honest_users_are_counted() -> None:
    """Half of them need twice the dummies each; the claim is that of the half."""
    all_, half = _wanted(), _wanted(honest_fraction=0.5)
    many, few = (tight_design("puredump", each) for each in (half, all_))

    assert 2 * few.expected_dummies == pytest.approx(many.expected_dummies, rel=0.05)
    assert task_of(many, half).central_epsilon <= 0.5


def test_more_dummies_than_messages_allow_are_refused() -> None:
    """Those of AUE have no other noise to be traded for."""
    wanted = _wanted()
    messages = 1 + tight_design("aue", wanted).expected_dummies
    capped = dataclasses.replace(wanted, messages_cap=messages - 0.1)

    with pytest.raises(PlanError, match=f"aue would take {messages:.4g} messages a user"):
        tight_design("aue", capped)
    with pytest.raises(PlanError, match=r"puredump cannot keep a central epsilon of 0\.1 "):
        tight_design("puredump", _wanted(central_epsilon=0.1, messages_cap=2.0))


def test_what_no_parameters_keep_is_refused() -> None:
    """A domain that is no bit; a crowd too small for AUE's dummies; a cap that nothing fits."""
    with pytest.raises(PlanError, match="ddps collects a bit; the domain size is 30"):
        tight_design("ddps", _wanted())
    with pytest.raises(PlanError, match=r"aue cannot keep a central epsilon of 0\.1 with 20"):
        tight_design("aue", _wanted(n_users=20, central_epsilon=0.1))
    with pytest.raises(PlanError, match=r"fe1 cannot keep .* a local epsilon of at most 2"):
        tight_design("fe1", _wanted(local_cap=2.0))
