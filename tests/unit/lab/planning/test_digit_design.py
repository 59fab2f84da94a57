"""Plans for means that are reported as digits, with users' dummies."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.accounting.claims import check_central_claim
from shuffledp.common.errors import PlanError
from shuffledp.common.mechanisms.base import Mixture
from shuffledp.common.mechanisms.numeric.digits import Digits
from shuffledp.common.mechanisms.registry import mean_mechanism_of
from shuffledp.common.task.draft import NumberDraft
from shuffledp.common.task.named_dummies import ViewDummies
from shuffledp.common.task.uniform_dummies import averaging
from shuffledp.lab.planning.digits import Radices, RadixSearch, design_of
from shuffledp.lab.planning.hierarchies import quantiles_beside
from shuffledp.lab.planning.planner import plan
from shuffledp.lab.planning.requirements import Requirements
from tests.support.requirements import designed, ratio_of_mean, value_requirements

_SETTINGS: Final = ((10_000, 0.1), (10_000, 1.0), (100_000, 0.1), (100_000, 1.0))


def _target(n_users: int, central_epsilon: float, **changes: Any) -> Requirements:
    return value_requirements(n_users=n_users, central_epsilon=central_epsilon, **changes)


@pytest.mark.parametrize(
    ("setting", "messages_cap", "most"),
    [
        (_SETTINGS[0], math.inf, 1.05),
        (_SETTINGS[1], 3.0, 1.50),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                *zip(_SETTINGS[1:], [math.inf] * 3, [1.06, 1.03, 1.06], strict=True),
                *((_SETTINGS[at], 3.0, most) for at, most in ((0, 1.34), (2, 1.18), (3, 1.90))),
            )
        ),
    ],
)
def test_the_error_is_near_that_of_central_gaussian_noise(
    setting: tuple[int, float], messages_cap: float, most: float
) -> None:
    """With rounding at its worst, in at most 7 messages; devices accept the claim."""
    target = _target(*setting, messages_cap=messages_cap)
    design = designed("digits", target)

    assert 1 < ratio_of_mean(design) <= most
    assert design.messages_per_user <= min(7.0, messages_cap)
    assert design.messages_per_user == pytest.approx(design.task.expected_reports_per_user)
    assert 0.998 * target.central_epsilon <= design.task.central_epsilon <= target.central_epsilon
    check_central_claim(design.task)


def _sent_by_users(n_users: int) -> Callable[[Radices, Sequence[float]], list[float]]:
    return lambda radices, variances: (np.multiply(radices, variances) / n_users).tolist()


@pytest.mark.parametrize("radices", [(2,), (3, 5), (2, 3, 4), (7, 2, 2)])
def test_the_formula_is_the_largest_variance_of_the_mechanism(radices: Radices) -> None:
    """Of the sum of 500 users' numbers, for the dummies whose variances the search is given."""
    variances = [10.0 * (1 + place) for place in range(len(radices))]
    target = _target(500, 1.0)
    search = RadixSearch(
        target=target, item_variances=lambda _: variances, sent=_sent_by_users(500)
    )
    means = [radix * each / 500 for radix, each in zip(radices, variances, strict=True)]
    dummies = ViewDummies.of_views([averaging(mean) for mean in means])
    task = design_of("digits", target, radices, dummies=dummies).unclaimed

    largest = mean_mechanism_of(task).worst_variance(500)
    assert search.error(radices) == pytest.approx(500**2 * largest)
    halfway = np.full((500, 1), 1 / (math.prod(radices) - 1) * (math.prod(radices) % 2))
    assert largest == pytest.approx(mean_mechanism_of(task).variance(halfway)[0])


def _like_gaussian(density: float, spare: float) -> Callable[[Sequence[float]], list[float]]:
    return lambda loads: [density * math.fsum(loads) / load + spare for load in loads]


@pytest.mark.parametrize("seed", range(12))
def test_no_radices_are_better_than_those_found(seed: int) -> None:
    """Of all with at most 4 digits and 96 points, in any order, under random caps."""
    rng = np.random.default_rng(seed)
    n_users, cap = round(10 ** rng.uniform(2, 4.5)), float(rng.choice([1.5, 2.5, 3.0, 4.0, 4.9]))
    search = RadixSearch(
        target=_target(n_users, 1.0, messages_cap=cap),
        item_variances=_like_gaussian(10 ** rng.uniform(0.5, 3.5), float(rng.choice([0.0, 11.0]))),
        sent=_sent_by_users(n_users) if rng.integers(2) else lambda *_: [],
    )
    radices = [
        each
        for number in range(1, 5)
        for each in itertools.product(range(2, 96 // 2 ** (number - 1) + 1), repeat=number)
        if math.prod(each) <= 96
    ]
    least = min(map(search.error, radices))

    if least == math.inf:
        with pytest.raises(PlanError, match=r"digits need .* messages per user; the caps allow"):
            search.best()
    else:
        assert min(map(search.error, search.best())) <= least * (1 + 1e-12)


@pytest.mark.slow
def test_few_messages_are_preferred_to_hardly_less_error() -> None:
    """A large cap is not used up for a gain of less than .3 %."""
    few, many = (designed("digits", _target(10_000, 1.0, messages_cap=cap)) for cap in (7.0, 20.0))

    assert many.messages_per_user < 11
    assert few.mse <= 1.01 * many.mse


def test_honest_users_alone_add_the_dummies_that_count() -> None:
    """With half of 8,000 users honest, the design adds the dummies of 4,000 users."""
    of_all = designed("digits", _target(8000, 1.0, n_min=4000, messages_cap=20))
    of_half = designed("digits", _target(8000, 1.0, honest_fraction=0.5, messages_cap=20))

    found, wanted = (each.unclaimed.dummies.expected_per_user for each in (of_all, of_half))
    assert found == pytest.approx(wanted, rel=1e-2)
    assert of_half.task.central_epsilon <= 1


def test_every_number_of_a_vector_has_the_same_digits() -> None:
    """Their error is that of central noise for all of them, in units of the range."""
    fields = {"numbers": NumberDraft(low=1.0, high=5.0)}
    target = value_requirements("vector", n_users=20_000, draft_fields=fields)
    found = plan(target)
    radices = found.best.draft.numbers and found.best.draft.numbers.radices
    assert radices

    assert ("vector-digits", radices * 3) == (found.best.protocol, found.best.task.view_sizes)
    assert 1 < ratio_of_mean(found.best) / 4 < 1.05
    assert found.best.task.central_epsilon <= 0.5
    assert found.best.messages_per_user <= 21
    others = [each.mse for each in found.runners_up if not each.biased]
    assert len(others) == 3
    assert min(others) > 4 * found.best.mse


def test_a_liar_moves_the_mean_as_the_plan_says() -> None:
    """All reports, dummies included, name the last value of the most significant digit."""
    design = designed("digits", _target(10_000, 1.0))
    mechanism = mean_mechanism_of(design.unclaimed)
    assert isinstance(mechanism, Digits)
    cells = np.concatenate([np.full(size, 7000) for size in mechanism.sizes])
    crafted = cells.copy()
    crafted[mechanism.sizes[0] - 1] += design.task.lengths[-1]
    mixture = Mixture(n_real=10_000, n_dummies=0)
    before, after = (float(mechanism.moments(each, mixture).means[0]) for each in (cells, crafted))

    assert 10_000 * (after - before) == pytest.approx(design.influence[0])
    assert design.influence[0] == design.influence[1]


def test_local_noise_is_left_to_the_other_protocols() -> None:
    """Under a local cap, or if the shuffler is not trusted, piecewise wins and keeps the cap."""
    capped, alone = (
        plan(value_requirements(local_cap=0.75)),
        plan(value_requirements(trust="none")),
    )

    for found, most in ((capped, 0.75), (alone, 0.5)):
        assert "digits has no local noise" in found.left_out["digits"]
        assert "geo-digits has no local noise" in found.left_out["geo-digits"]
        assert found.best.local_epsilon <= most
    with pytest.raises(PlanError, match=r"digits need 1\.0\d+ messages per user; the caps allow 1"):
        designed("digits", _target(10_000, 1.0, messages_cap=1.0))


def test_a_bytes_cap_limits_the_digits_and_other_reports() -> None:
    """In 240 bytes there are three digits and few dummies; a report of laplace takes 120."""
    design = designed("digits", _target(10_000, 1.0, bytes_cap=240.0))
    found = plan(value_requirements(bytes_cap=116.0, local_cap=0.5))

    assert 220 <= design.bytes_per_user <= 240
    assert 3 == len(design.task.views)
    assert "laplace has 120 bytes per user; the bytes cap is 116" == found.left_out["laplace"]
    assert found.best.bytes_per_user <= 116


def test_a_plan_of_a_mean_names_the_hierarchy_for_quantiles() -> None:
    """With about twice the error of this plan; with a local cap there is none."""
    text = quantiles_beside(_target(10_000, 1.0))

    assert "with 64 buckets, hierarchy has about 3.92 messages per user" in text
    assert "1.96 times the error of central Gaussian noise" in text
    assert "" == quantiles_beside(_target(10_000, 1.0, local_cap=4.0))
    assert "" == quantiles_beside(_target(10_000, 1.0, messages_cap=1.1))
    assert "" == quantiles_beside(_target(100, 0.01))  # more dummies than a task can have


def test_the_largest_variance_of_a_noisy_report_is_predicted() -> None:
    """No spread of numbers has a larger one."""
    for protocol in ("laplace", "duchi", "piecewise", "hybrid-mean"):
        design = designed(protocol, value_requirements(local_cap=1.0))
        mechanism, n_users = mean_mechanism_of(design.unclaimed), design.target.n_users
        people = np.linspace(-1, 1, 41)[:, np.newaxis]
        errors = [mechanism.variance(each[np.newaxis])[0] / n_users for each in people]

        assert design.mse == pytest.approx(max(errors), rel=1e-6)
