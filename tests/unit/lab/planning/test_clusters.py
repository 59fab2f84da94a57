import math
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.accounting.cluster_noise import _plans
from shuffledp.common.accounting.guarantees import guarantees_under
from shuffledp.common.errors import PlanError
from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.lab.planning import clusters
from shuffledp.lab.planning.calibration import gaussian_mu
from shuffledp.lab.planning.cluster_law import poisson_delta, shipped_laws
from shuffledp.lab.planning.clusters import ClusterTarget, cluster_specs, predicted_noise
from tests.support.requirements import reduction_of, small_requirements
from tests.vectors.make_cluster_laws import made, variance_at_level

_CITIES: Final = {"honest_users": 602_325, "domain_size": 915}
_SIGNED: Final = clusters.Clusters("signed")
_SMALL: Final = {"honest_users": 10_000, "domain_size": 100}


def _target(users: dict[str, int], **changes: Any) -> ClusterTarget:
    return ClusterTarget(**{"epsilon": 1.0, "delta": 1e-6, **users, **changes})


def _ratio(spec: ClusterDummies, target: ClusterTarget) -> float:
    """Return the error of a count, divided by the central Gaussian mechanism's."""
    n, d = target.honest_users, target.domain_size
    error = n * spec.noise * (d - 1) / d**2
    return error / (2 / gaussian_mu(target.epsilon, target.delta) ** 2)


def test_every_shipped_law_makes_a_valid_task() -> None:
    """Each law gives a ClusterDummies with all its types and its noise."""
    target = _target(_CITIES)
    for law in shipped_laws():
        spec = clusters._spec(law, (0.8,) * len(law.sizes), 1.0, target)
        noise = target.honest_users / target.domain_size * spec.noise

        assert {each[:2] for each in law.types} == {each[:2] for each in spec.clusters}
        assert law.noise == pytest.approx(noise, rel=1e-3)


@pytest.mark.parametrize(
    ("users", "changes"),
    [
        pytest.param(_CITIES, {"messages_cap": 1.2}, marks=pytest.mark.slow),
        pytest.param(_SMALL, {"messages_cap": 5.0}, marks=pytest.mark.slow),
        pytest.param(
            *(_SMALL, {"messages_cap": 5.0, "epsilon": 1.2, "delta": 1e-9}), marks=pytest.mark.slow
        ),
        (_SMALL, {"influence_cap": 10}),
    ],
)
def test_designs_meet_the_target_and_the_caps_and_hardly_exceed_them(
    users: dict[str, int], changes: dict[str, Any]
) -> None:
    """The certified δ is 90 to 100 % of the target; no cap is exceeded."""
    target = _target(users, **changes)
    for spec in cluster_specs(target):
        release = clusters.cluster_release(spec, target.honest_users, target.domain_size)

        assert 0.9 * target.delta < release.delta(target.epsilon) < target.delta
        assert 1 + spec.expected_sent <= target.messages_cap
        assert max(spec.influence) <= target.influence_cap


def test_the_least_error_comes_first() -> None:
    """Designs are ordered by error, but the first one has the fewest bytes within .3 %."""
    targets = (_target(_SMALL, messages_cap=messages) for messages in (2.0, 5.0))
    specs = clusters._ranked([cluster_specs(target)[0] for target in targets])
    errors = [spec.noise for spec in specs]
    close = [spec for spec in specs if spec.noise <= 1.003 * min(errors)]

    assert len(specs) > 1
    assert specs[0] == min(close, key=lambda spec: spec.expected_sent)
    assert errors[len(close) :] == sorted(errors[len(close) :])


@pytest.mark.parametrize(
    ("epsilon", "messages", "ratio"),
    [(1.0, 1.6, 0.33), pytest.param(0.5, 1.6, 0.44, marks=pytest.mark.slow)],
)
def test_errors_are_far_below_central_gaussian_noise(
    epsilon: float, messages: float, ratio: float
) -> None:
    """Figures of 602,325 users and 915 items, as a ratio to the central Gaussian mechanism's."""
    target = _target(_CITIES, epsilon=epsilon, messages_cap=messages)

    assert _ratio(cluster_specs(target)[0], target) <= ratio


def test_padding_to_one_length_is_found_where_large_submissions_are_barred() -> None:
    """Where one submission may move 14 users, some design has everybody show its only room."""
    specs = cluster_specs(_target(_SMALL, influence_cap=14, messages_cap=7))

    assert all(max(spec.influence) <= 14 for spec in specs)
    assert any(len(spec.lengths) == 1 for spec in specs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"messages_cap": 1.01},
            "the expected reports per user must be at least .*; the cap is 1.01",
        ),
        ({"influence_cap": 2}, "the influence of one submission must be at least"),
        (
            {"honest_users": 20},
            "no tabulated clusters meet the clusters' own epsilon 1 at delta 1e-06 with 20 users",
        ),
    ],
)
def test_impossible_targets_are_refused_with_the_least_possible_cap(
    changes: dict[str, Any], message: str
) -> None:
    """The message names the cap and the figure that it would have to allow."""
    with pytest.raises(PlanError, match=message):
        cluster_specs(_target({**_SMALL, **changes}))


def test_a_law_without_types_in_a_room_is_refused() -> None:
    """Rooms must hold types, and types must lie in rooms."""
    for sizes in ((1, 5), (1,)):
        with pytest.raises(PlanError, match="rooms of"):
            replace(shipped_laws()[0], sizes=sizes, types=((2, 2, 1.0),))


def test_the_model_gives_the_gradient_of_its_delta() -> None:
    """Finite differences agree with the gradient to 1 %."""
    law = next(law for law in shipped_laws() if law.epsilon == 1.0)
    delta_of, rates = partial(poisson_delta, *law.counts, epsilon=1.0), law.rates
    _, gradient = delta_of(rates)
    direction = rates * np.linspace(0.5, 1.5, len(rates))
    above, below = (delta_of(rates + step * direction)[0] for step in (0.003, -0.003))

    assert gradient() @ direction == pytest.approx((above - below) / 0.006, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("users", [_SMALL, {"honest_users": 2_800, "domain_size": 7}])
def test_the_model_predicts_what_the_accountant_asks_for(users: dict[str, int]) -> None:
    """The noise is within 10 % of the prediction, also where items are few and rooms random."""
    target = _target(users, epsilon=0.55, messages_cap=5.0)

    assert predicted_noise(target) == pytest.approx(cluster_specs(target)[0].noise, rel=0.1)


def test_clusters_that_cannot_be_useful_are_not_calibrated() -> None:
    """Where another protocol is better by the prediction, the accountant is not asked."""
    target, before = _target(_SMALL, messages_cap=5.0), _plans.cache_info().misses
    least = predicted_noise(target)
    for useful in (-1.0, 0.0, 0.99 * least):
        with pytest.raises(PlanError, match=r"its error would be larger|must be at least"):
            cluster_specs(replace(target, useful_noise=useful))

    assert before == _plans.cache_info().misses


def test_the_script_makes_a_law_as_good_as_the_shipped_one() -> None:
    """A small shape at ε = 1 comes out with the same noise and number of clusters."""
    shipped = next(law for law in shipped_laws() if law.epsilon == 1.0)
    again = made(shipped)

    assert shipped.noise == pytest.approx(again.noise, rel=0.01)
    assert shipped.rates.sum() == pytest.approx(again.rates.sum(), rel=0.02)
    assert math.isclose(again.noise, variance_at_level(shipped), rel_tol=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 3}, "signed is planned for one round, and there are 3"),
        ({"trust": "none"}, "signed relies on a shuffler that permutes; trust is none"),
        ({"local_cap": 2.0}, "a local cap of 2 leaves 0.18 of the reports true; signed needs at"),
    ],
)
def test_what_signed_is_not_planned_for_is_refused(changes: dict[str, Any], message: str) -> None:
    """The message names the reason."""
    with pytest.raises(PlanError, match=message):
        _SIGNED.design("signed", small_requirements(**changes))


@pytest.mark.parametrize("local_cap", [8.0, pytest.param(5.0, marks=pytest.mark.slow)])
def test_a_design_with_local_noise_meets_its_target(local_cap: float) -> None:
    """Within the caps; influence counts users, so that local noise raises it."""
    target = small_requirements(
        domain_size=20,
        central_epsilon=1.0,
        local_cap=local_cap,
        messages_cap=3.0,
        influence_cap=11.0,
    )
    design = _SIGNED.design("signed", target)
    analyzer, both, *_ = guarantees_under(design.parameters, target.n_min)

    assert 0.98 < analyzer.epsilon <= 1.0
    assert 1e-6 == analyzer.delta
    assert local_cap == both.epsilon
    dummies = design.unclaimed.dummies
    assert isinstance(dummies, ClusterDummies)
    most = max(dummies.influence) / reduction_of(design).signal
    assert math.isclose(max(design.influence), most)
    assert max(design.influence) <= 11
    assert design.messages_per_user <= 3
