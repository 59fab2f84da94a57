import dataclasses
import math
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import numpy as np
import pytest
from scipy import optimize

from shuffledp.common.accounting.amplification import delta_upper
from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.releases import AmplifiedRelease
from shuffledp.common.mechanisms.hashing.local_hashing import fields
from shuffledp.common.messages.guarantee import sum_upper
from shuffledp.lab.planning.design import Design
from shuffledp.lab.planning.planner import Plan, plan
from shuffledp.lab.planning.requirements import Requirements
from tests.support.requirements import designed, reduction_of, small_requirements

_BEYOND_THE_REFERENCE: Final = 1.03
_BEYOND_THE_GRID: Final = 0.99


def _all(found: Plan) -> dict[str, Design]:
    return {each.protocol: each for each in (found.best, *found.runners_up)}


def _exact_epsilon(design: Design, target: Requirements) -> float:
    """Return a design's ε, computed by the accountant without the planner."""
    anonymity_set = design.parameters.anonymity_set(target.n_min)
    if target.rounds == 1:
        return design.parameters.release(anonymity_set).epsilon(target.delta)
    release = AmplifiedRelease(reduction=reduction_of(design), anonymity_set=anonymity_set)
    return composed_epsilon([release] * target.rounds, target.delta)


_CITIES: Final = {"n_users": 602_325, "domain_size": 915}
_WORDS: Final = {"n_users": 990_002, "domain_size": 41_270}

_REFERENCE = [
    pytest.param("", _CITIES, 0.1, 2.0, math.inf, 1.18, marks=pytest.mark.slow),
    pytest.param("", _WORDS, 0.2, 4.0, math.inf, 1.06, marks=pytest.mark.slow),
    ("sh", _CITIES, 1.0, 1.0, math.inf, 2.54),
    pytest.param("murs", _CITIES, 0.1, 1.0, math.inf, 2.03, marks=pytest.mark.slow),
    *(
        pytest.param(protocol, data, epsilon, messages, cap, ratio, marks=pytest.mark.slow)
        for protocol, data, messages, cap, ratios in (
            ("", _CITIES, 2.0, math.inf, (1.18, 1.04, 1.05, 1.19)),
            ("", _CITIES, 16.0, 8.0, (1.08, 1.3, 3.8, 14)),
            ("", _CITIES, 16.0, 6.0, (2.5, 9, 51, 185)),
            ("", _CITIES, 16.0, 4.0, (18, 65, 361, 1314)),
            ("", _WORDS, 2.0, math.inf, (1.07, 1.11, 1.18, 1.30)),
            ("", _WORDS, 4.0, math.inf, (1.04, 1.06, 1.10, 1.20)),
            ("", _WORDS, 16.0, math.inf, (1.02, 1.02, 1.05, 1.20)),
            # Of one message, SH is the best.
            ("sh", _CITIES, 1.0, math.inf, (1.49, 1.64, 2.09)),
            ("sh", _WORDS, 1.0, math.inf, (1.21, 1.27, 1.39, 1.56)),
            ("puredump", _CITIES, 5.1, math.inf, (1.00, 1.01, 1.05, 1.19)),
            ("puredump", _WORDS, 113.0, math.inf, (1.00, 1.01, 1.05, 1.20)),
        )
        for epsilon, ratio in zip((0.1, 0.2, 0.5, 1.0), ratios, strict=False)
    ),
]


@pytest.mark.parametrize(("protocol", "data", "epsilon", "messages", "cap", "ratio"), _REFERENCE)
def test_a_plan_is_no_worse_than_the_reference(  # noqa: PLR0917
    protocol: str, data: dict[str, int], epsilon: float, messages: float, cap: float, ratio: float
) -> None:
    """The best design, or one protocol's, meets the target by independent accounting."""
    target = small_requirements(
        **data, central_epsilon=epsilon, messages_cap=messages, local_cap=cap
    )
    found = plan(target)
    design = _all(found)[protocol or found.best.protocol]

    assert design.ratio_to_central_gaussian <= _BEYOND_THE_REFERENCE * ratio
    assert _exact_epsilon(design, target) <= epsilon
    assert design.local_epsilon <= cap
    assert design.messages_per_user <= messages + 1e-6


def _places(target: Requirements) -> Iterator[Design]:
    """Yield designs with up to twelve numbers of buckets and sixteen numbers of dummies."""
    primes = fields(target.domain_size).astype(int).tolist()
    most = target.messages_cap - 1
    dummies = [0.0, *np.geomspace(0.01, most, 15).tolist()] if most > 0 else [0.0]
    for buckets, each in product([0, *primes[:: max(1, len(primes) // 12)]], dummies):
        yield Design.of("od-hp", target, buckets=buckets, dummies_per_user=each)


def _bluntest(place: Design, mse: float) -> Design | None:
    """Return the most private design at a place with this error, if its local ε is allowed."""

    def noisy(epsilon: float) -> Design:
        draft = dataclasses.replace(place.draft, local_epsilon=epsilon)
        return dataclasses.replace(place, draft=draft)

    def excess(epsilon: float) -> float:
        return math.log(noisy(epsilon).mse / mse)

    if excess(min(20.0, place.target.local_cap)) > 0:
        return None
    epsilon = float(optimize.brentq(excess, 1e-4, 20.0, xtol=1e-6))
    return noisy(epsilon)


def _kept(design: Design, target: Requirements) -> bool:
    if target.rounds > 1:
        return _exact_epsilon(design, target) <= target.central_epsilon
    anonymity_set = design.parameters.anonymity_set(target.n_min)
    return delta_upper(reduction_of(design), anonymity_set, target.central_epsilon) <= target.delta


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"n_users": 1000, "domain_size": 5, "central_epsilon": 1.0},
        {"honest_fraction": 0.5, "central_epsilon": 2.0},
        {"domain_size": 2, "central_epsilon": 0.1, "delta": 1e-9},
        {"n_users": 1000, "central_epsilon": 0.1, "local_cap": 2.0, "messages_cap": 3.0},
        {"domain_size": 101, "central_epsilon": 0.3, "local_cap": 6.0, "messages_cap": 1.5},
        {"n_users": 5000, "delta": 1e-9, "messages_cap": 1.0},
        {"domain_size": 400, "central_epsilon": 0.2, "local_cap": 4.0},
        {"domain_size": 2000, "messages_cap": 1.2, "local_cap": 7.0},
        {"domain_size": 5, "central_epsilon": 1.0, "rounds": 10},
    ],
)
def test_no_design_on_a_grid_of_all_is_better(changes: dict[str, Any]) -> None:
    """No other design has an error smaller by one per cent, whatever its local ε."""
    target = small_requirements(**changes)
    found = plan(target)

    assert _exact_epsilon(found.best, target) <= target.central_epsilon
    for place in _places(target):
        better = _bluntest(place, _BEYOND_THE_GRID * found.best.mse)
        assert better is None or not _kept(better, target)


@pytest.mark.slow
def test_each_protocol_is_listed_with_its_best_design() -> None:
    """Also where plain items are better than hashed ones, as for four."""
    target = small_requirements(n_users=1000, domain_size=4, central_epsilon=1.0, local_cap=4.0)
    for name, design in _all(plan(target)).items():
        assert design.mse <= 1.005 * designed(name, target).mse


def test_the_guarantees_are_one_a_coalition() -> None:
    """More adversaries have a larger ε; all together have the local one."""
    found = plan(small_requirements(local_cap=5.0, domain_size=400))
    analyzer, with_users, alone, everybody, *outsiders = found.guarantees

    assert [
        *("analyzer", "analyzer+users", "analyzer+sybils", "shuffler+analyzer"),
        *("shuffler", "network"),
    ] == [row.coalition for row in found.guarantees]
    assert all(row.theorem.startswith("computational") for row in outsiders)
    assert analyzer.epsilon < with_users.epsilon < alone.epsilon <= everybody.epsilon
    assert everybody.epsilon == pytest.approx(found.best.local_epsilon)
    assert "an illustration" in with_users.assumptions[0]
    assert "the other 10,000 may" in " ".join(with_users.assumptions)


@pytest.mark.slow
def test_rounds_count_in_every_row_and_skippers_have_one() -> None:
    """Ten rounds cost ten times the local ε; the central guarantee assumes honest users."""
    target = small_requirements(rounds=10, honest_fraction=0.5, central_epsilon=1.0)
    found = plan(target)
    rows = {row.coalition: row for row in reversed(found.guarantees)}

    assert found.central_guarantee == rows["analyzer+users"]
    assert "10 such tasks" in " ".join(found.central_guarantee.assumptions)
    assert rows["shuffler+analyzer"].epsilon == sum_upper([found.best.local_epsilon] * 10)
    if found.best.draft.dummies_per_user:
        skipped = rows["analyzer+skippers"].epsilon
        assert rows["analyzer"].epsilon < skipped < rows["analyzer+users"].epsilon


def test_binding_constraints_are_named() -> None:
    """A cap that is reached is named too."""
    changes = {"n_users": 1000, "domain_size": 5, "messages_cap": 1.1}
    found = plan(small_requirements(central_epsilon=1.0, **changes))

    assert ("central epsilon", "messages cap") == found.binding


def test_without_trust_the_local_epsilon_keeps_the_target() -> None:
    """The target is split over the rounds, without dummies; amplification is only stated."""
    found = plan(small_requirements(trust="none", rounds=2, central_epsilon=1.0, domain_size=400))
    design = found.best

    assert design.local_epsilon == pytest.approx(0.5, rel=1e-4)
    assert design.local_epsilon <= 0.5
    assert {"sh", "murs"} == set(_all(found))
    assert found.guarantees[0].epsilon < 0.2
    assert found.guarantees[2].epsilon <= 1.0


def test_a_head_value_has_a_larger_error_than_a_rare_one() -> None:
    """The variances are exact; their mean over all values is the predicted error."""
    target = small_requirements(domain_size=4, head=(0.5, 0.3, 0.1, 0.1), local_cap=1.0)
    best = plan(target).best
    errors = best.head_errors()

    assert errors[0] > errors[2]
    assert best.mse == pytest.approx(np.mean(errors))
