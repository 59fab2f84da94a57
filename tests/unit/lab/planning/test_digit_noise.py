"""Plans for means that are reported as digits, with shufflers' noise of each digit."""

import itertools
import math
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.accounting.claims import check_central_claim, check_coalition_claim
from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.errors import PlanError
from shuffledp.common.task.shuffler_spec import ShufflerSpec
from shuffledp.lab.planning.digits import loads_of
from shuffledp.lab.planning.item_dummies import least_geometric
from shuffledp.lab.planning.planner import plan
from shuffledp.lab.planning.requirements import Requirements
from tests.support.requirements import designed, ratio_of_mean, value_requirements

_SETTINGS: Final = ((10_000, 0.1), (10_000, 1.0), (100_000, 0.1), (100_000, 1.0))


def _target(n_users: int, central_epsilon: float, **changes: Any) -> Requirements:
    return value_requirements(n_users=n_users, central_epsilon=central_epsilon, **changes)


@pytest.mark.parametrize(
    ("setting", "most"), [*zip(_SETTINGS, [0.50, 0.60, 0.70, 0.64], strict=True)]
)
def test_one_shuffler_adds_less_noise_than_a_central_gaussian(
    setting: tuple[int, float], most: float
) -> None:
    """Users send their digits alone; devices accept the claim, which is near the target."""
    target = _target(*setting, trust="shuffler-dummies")
    design = designed("geo-digits", target)

    assert ratio_of_mean(design) <= most
    assert design.messages_per_user == len(design.task.views) <= 4
    assert 0.99 * target.central_epsilon <= design.task.central_epsilon <= target.central_epsilon
    check_central_claim(design.task)


@pytest.mark.parametrize(
    ("setting", "most"), [*zip(_SETTINGS, [0.89, 1.20, 1.32, 1.29], strict=True)]
)
def test_each_of_two_full_noises_meets_the_target_alone(
    setting: tuple[int, float], most: float
) -> None:
    """Against the other shuffler and the analyzer; both together hide a user better."""
    target = _target(*setting, shufflers=2, coalition_epsilon=setting[1])
    design = designed("geo-digits", target)
    task = design.task

    assert ratio_of_mean(design) <= most
    assert task.shufflers[0].noises == task.shufflers[1].noises
    assert 0.97 * setting[1] <= task.coalition_epsilon <= setting[1]
    assert task.central_epsilon < 0.85 * setting[1]
    check_central_claim(task)
    check_coalition_claim(task)


def test_a_large_delta_needs_hardly_any_noise() -> None:
    """Losses that compose to an ε of 0 meet the target."""
    design = designed("geo-digits", _target(10_000, 1.0, delta=0.9, trust="shuffler-dummies"))

    assert design.task.central_epsilon <= 1


def test_a_weaker_second_noise_costs_little() -> None:
    """At a coalition ε of 4, the central ε is met nearly as with one shuffler."""
    two = designed("geo-digits", _target(10_000, 1.0, shufflers=2))
    one = designed("geo-digits", _target(10_000, 1.0, trust="shuffler-dummies"))

    assert one.mse < two.mse < 1.1 * one.mse
    assert 0.99 <= two.task.central_epsilon <= 1
    assert 3 < two.task.coalition_epsilon <= 4
    check_coalition_claim(two.task)


def test_no_split_of_epsilon_is_much_better() -> None:
    """Of two digits: tried are 19 shares and 5 totals, and those that meet the target count."""
    target = _target(100_000, 0.1, trust="shuffler-dummies")
    design = designed("geo-digits", target)
    loads, errors = loads_of((4, 5)), list[float]()
    for share, total in itertools.product(np.linspace(0.5, 0.95, 19), np.linspace(0.093, 0.1, 5)):
        noises = [least_geometric(total * part, 4.5e-7) for part in (share, 1 - share)]
        releases = [ItemNoiseRelease.of_shuffler(ShufflerSpec(noise=noise)) for noise in noises]
        if composed_epsilon(releases, target.delta) <= target.central_epsilon:
            spreads = [noise.moments()[1] for noise in noises]
            errors.append(sum(x**2 * each / 2 for x, each in zip(loads, spreads, strict=True)))
    rounding = 100_000 / 19**2

    assert (4, 5) == design.task.view_sizes
    assert len(errors) > 10
    assert 100_000**2 * design.mse - rounding <= 1.04 * min(errors)


def test_many_numbers_share_a_noise_for_each_digit() -> None:
    """Their losses compose to less than the sum: 20 times the noise of one is not needed."""
    one, many = (
        designed(
            "geo-vector-digits",
            value_requirements(
                "vector",
                n_users=100_000,
                domain_size=size,
                trust="shuffler-dummies",
                central_epsilon=1.0,
            ),
        )
        for size in (2, 40)
    )

    views = len(many.task.views) // 40
    assert many.task.shufflers[0].noises == many.task.shufflers[0].noises[:views] * 40
    assert many.mse < 0.5 * 20**2 * one.mse
    assert 0.99 <= many.task.central_epsilon <= 1


def test_noise_is_refused_without_trust_or_possible_numbers() -> None:
    """A shuffler that only permutes adds none; ε = .0001 needs more than it can add."""
    with pytest.raises(PlanError, match="trust=shuffler-dummies instead of ano"):
        designed("geo-digits", _target(10_000, 1.0))
    with pytest.raises(PlanError, match="has no local noise"):
        designed("geo-digits", _target(10_000, 1.0, trust="shuffler-dummies", local_cap=4.0))
    with pytest.raises(PlanError, match="noise of digits cannot meet a central epsilon of 1e-05"):
        designed("geo-digits", _target(10**9, 1e-5, trust="shuffler-dummies"))
    with pytest.raises(PlanError, match="trust must not be none"):
        plan(value_requirements(shufflers=2, trust="none"))


@pytest.mark.slow
def test_a_plan_takes_the_least_error_that_the_trust_allows() -> None:
    """Shufflers' noise, if one is trusted with it or there are two."""
    trusted = plan(value_requirements(n_users=10_000, trust="shuffler-dummies"))
    two = plan(value_requirements(n_users=10_000, shufflers=2))

    assert "geo-digits" == trusted.best.protocol == two.best.protocol
    assert ["digits", "piecewise"] == [each.protocol for each in trusted.runners_up[:2]]
    assert trusted.two_shufflers is not None
    assert trusted.best.mse < trusted.two_shufflers.mse == two.best.mse
    assert ("central epsilon",) == two.binding
    assert math.isinf(two.best.local_epsilon)
