import math
from typing import Any, Final

import pytest

from shuffledp.common.accounting.guarantees import central_epsilon
from shuffledp.common.errors import PlanError
from shuffledp.common.protocols import PROTOCOLS, protocols_of
from shuffledp.lab.planning.calibration import gaussian_mu
from shuffledp.lab.planning.item_dummies import ShufflerNoise
from shuffledp.lab.planning.noisy_reports import NoisyReports
from shuffledp.lab.planning.planner import FAMILIES
from shuffledp.lab.planning.requirements import Requirements
from tests.support.requirements import amplified_requirements, designed

_CITIES: Final = {"n_users": 602_325, "domain_size": 915}
_AMPLIFIED: Final = [name for name in protocols_of("categorical") if PROTOCOLS[name].amplified]

_LIKE_ANOTHER: Final = {"hp-sdp", "fe1", "puredump", "mixdump"}
"""Protocols that are searched as MURS, OD-HP and SH."""


def _wanted(**changes: Any) -> Requirements:
    return amplified_requirements(**{"n_users": 5000} | changes)


@pytest.mark.parametrize(
    ("protocol", "changes"),
    [
        pytest.param(name, changes, marks=pytest.mark.slow if changes or slow else ())
        for name in _AMPLIFIED
        if name != "ddps"
        for changes in ({}, {"central_epsilon": 1.5, "delta": 1e-9})
        for slow in [name in {"signed", *_LIKE_ANOTHER}]
    ],
)
def test_a_task_claims_the_target_and_hardly_less(protocol: str, changes: dict[str, Any]) -> None:
    """The claim of its published task is 95 to 100 % of the target."""
    target = _wanted(**changes)
    claimed = designed(protocol, target).task.central_epsilon

    assert 0.95 * target.central_epsilon < claimed <= target.central_epsilon


@pytest.mark.slow
def test_a_protocol_without_a_search_is_planned_with_one_noisy_report() -> None:
    """Its error is that of the search which another protocol has for the same reports."""
    searched, found = designed("sh", _wanted()), NoisyReports("sh").design("sh", _wanted())

    assert searched.mse == pytest.approx(found.mse, rel=0.04)


@pytest.mark.parametrize("epsilon", [0.1, pytest.param(0.5, marks=pytest.mark.slow)])
def test_dummies_have_the_error_of_central_mechanisms(epsilon: float) -> None:
    """SAGeo's noise has the error of Laplace noise, 8/(εn)²; PureDUMP's of Gaussian noise."""
    target, n = _wanted(central_epsilon=epsilon, **_CITIES), 602_325
    gaussian = 2 / (gaussian_mu(epsilon, 1e-6) * n) ** 2

    assert 8 / (epsilon * n) ** 2 == pytest.approx(designed("sageo", target).mse, rel=0.03)
    assert gaussian == pytest.approx(designed("puredump", target).mse, rel=0.05)


def test_the_guarantee_covers_all_rounds_together() -> None:
    """The composed ε of every design meets the target, and is not far below it."""
    target = _wanted(central_epsilon=1.0, rounds=4, delta=1e-5)
    for design in (designed("sageo", target), designed("sbin", target)):
        parameters = design.parameters
        together = central_epsilon(
            parameters, parameters.release(parameters.anonymity_set(target.n_min))
        )
        assert 0.95 < together <= 1


def test_a_cap_on_the_local_epsilon_leaves_the_hybrid() -> None:
    """Reports without noise are excluded; without a cap there are three designs."""
    family = next(each for each in FAMILIES if isinstance(each, ShufflerNoise))
    capped, free = (
        family.designs(_wanted(local_cap=cap), lambda _: None) for cap in (2.0, math.inf)
    )

    assert [("hybrid", 2.0)] == [(each.protocol, each.local_epsilon) for each in capped.designs]
    assert {"sageo", "sbin"} == capped.refusals.keys()
    assert {"hybrid", "sageo", "sbin"} == free.protocols


def test_every_protocol_is_in_one_family() -> None:
    """Its search is found in one row."""
    names = [name for family in FAMILIES for name in family.names]

    assert sorted(PROTOCOLS) == sorted(names)


_BIT: Final = {"domain_size": 2}
_ALONE: Final = {"messages_cap": 1.0}
_CAPPED: Final = {"local_cap": 2.0}
_SLOW: Final = pytest.mark.slow


@pytest.mark.parametrize(
    ("protocol", "changes"),
    [
        *(("ddps", _BIT), ("murs", _BIT), ("od-hp", _ALONE)),
        *((name, _CAPPED) for name in ("sh", "hybrid")),
        *(pytest.param(name, _CAPPED, marks=_SLOW) for name in ("murs", "mixdump", "od-hp")),
        pytest.param("od-hp", _BIT, marks=_SLOW),
        pytest.param("mixdump", _ALONE, marks=_SLOW),
    ],
)
def test_caps_and_a_small_domain_are_kept(protocol: str, changes: dict[str, Any]) -> None:
    """Two items are never hashed, caps hold, and the claim is tight where no cap binds."""
    target = _wanted(**changes)
    found = designed(protocol, target)
    claimed = found.task.central_epsilon

    assert found.local_epsilon <= target.local_cap
    assert 1 + found.unclaimed.dummies.maximum <= target.messages_cap
    assert found.draft.buckets == 0 or target.domain_size > 2
    assert (0 if changes is _CAPPED else 0.95 * 0.5) < claimed <= 0.5


@pytest.mark.parametrize(
    ("protocol", "changes", "message"),
    [
        ("aue", {"messages_cap": 1.0}, r"aue needs .* messages per user; the messages cap is 1"),
        (
            "puredump",
            {"central_epsilon": 0.1, "messages_cap": 2.0},
            r"puredump cannot meet a central epsilon of 0\.1 ",
        ),
        ("ddps", {}, "the domain size is 30; for ddps it must be 2"),
        (
            "aue",
            {"n_users": 20, "central_epsilon": 0.1},
            r"aue cannot meet a central epsilon of 0\.1 with 20",
        ),
        ("fe1", {"local_cap": 2.0}, "fe1 has no local noise"),
    ],
)
def test_unreachable_requirements_are_refused(
    protocol: str, changes: dict[str, Any], message: str
) -> None:
    """The message names the number that is out of range."""
    with pytest.raises(PlanError, match=message):
        designed(protocol, _wanted(**changes))
