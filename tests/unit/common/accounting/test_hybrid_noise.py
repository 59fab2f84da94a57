"""Randomized response under the shuffler's noise, against enumeration."""

import math

import numpy as np
import pytest

from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.hybrid_noise import HybridRelease
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.accounting.releases import AmplifiedRelease
from shuffledp.common.task.shuffler_spec import GeometricNoise, ShufflerSpec
from shuffledp.lab.planning.item_dummies import least_geometric
from tests.support.exhaustive_delta import grr_distribution, true_delta_with_item_noise
from tests.support.reductions import geometric_noise, of_grr


def _release(users: int, items: int, local_epsilon: float, spec: ShufflerSpec) -> HybridRelease:
    reduction = of_grr(items, local_epsilon)
    amplified = AmplifiedRelease(reduction=reduction, anonymity_set=AnonymitySet(users=users))
    return HybridRelease(amplified=amplified, shuffler=spec)


_SPECS = [
    ShufflerSpec(noise=geometric_noise(1, 0.5, 0.5, 3)),
    ShufflerSpec(noise=geometric_noise(2, 0.75, 0.5, 3)),
    ShufflerSpec(noise=geometric_noise(0, 0.5, 0.5, 2)),
]
_TALL = ShufflerSpec(noise=geometric_noise(7, 0.1, 0.5, 11))
"""Adds nothing so rarely that other items' counts reveal little about a report."""
_FEW_ITEMS = [(1, 2, 1.0), (4, 2, 1.0), (1, 3, 2.0), (3, 3, 0.7), (3, 3, 3.0)]


@pytest.mark.parametrize(
    ("users", "items", "local_epsilon", "spec"),
    [(*instance, spec) for instance in _FEW_ITEMS for spec in _SPECS]
    + [(*instance, _TALL) for instance in _FEW_ITEMS[:3]]
    + [pytest.param(*instance, _TALL, marks=pytest.mark.slow) for instance in _FEW_ITEMS[3:]]
    + [pytest.param(2, 4, 2.0, spec, marks=pytest.mark.slow) for spec in _SPECS[:2]]
    + [(2, 4, 2.0, _SPECS[2])],
)
def test_delta_is_never_below_the_worst_data_set(
    users: int, items: int, local_epsilon: float, spec: ShufflerSpec
) -> None:
    """Enumerated; exact for one user and two items."""
    release = _release(users, items, local_epsilon, spec)
    distributions = [grr_distribution(value, items, local_epsilon) for value in range(items)]
    assert isinstance(spec.noise, GeometricNoise)
    distribution = dict(enumerate(spec.noise.probabilities()))
    for epsilon in (0.0, 1e-6, 0.2, 0.6, 1.2, 2.5):
        true = true_delta_with_item_noise(
            distributions, users=users, noise=distribution, epsilon=epsilon
        )
        assert true * (1 - 1e-9) - 1e-15 <= release.delta(epsilon)
        if (users, items) == (1, 2) and spec is not _TALL:
            assert true == pytest.approx(release.delta(epsilon), rel=1e-6)


def test_counts_of_other_items_hide_no_more_than_stated() -> None:
    """One user and three items, enumerated; each item gets dummies, so that any count may hide."""
    noise = geometric_noise(26, 0.6, 0.6, 60)
    release = _release(1, 3, 2.0, ShufflerSpec(noise=noise))
    alone = np.append(noise.probabilities(), 0.0)
    counts = np.einsum("i,j,k->ijk", alone, alone, alone)
    named = [np.roll(counts, 1, axis) for axis in range(3)]
    q = 1 / (math.exp(2.0) + 2)
    first, second, _ = (q * sum(named) + (1 - 3 * q) * own for own in named)
    for epsilon in (0.01, 0.1, 0.3, 0.6, 1.2):
        true = float(np.maximum(first - math.exp(epsilon) * second, 0).sum())
        assert true * (1 - 1e-9) <= release.delta(epsilon)


@pytest.mark.slow
def test_reports_of_others_add_to_the_noise() -> None:
    """602,325 users, 915 items, ε0 = 8: .0766; the noise alone gives .1."""
    release = _release(602_325, 915, 8.0, ShufflerSpec(noise=least_geometric(0.1, 1e-6)))

    assert 0.0766 == pytest.approx(release.epsilon(1e-6), rel=2e-3)
    assert release.delta(release.epsilon(1e-6)) <= 1e-6 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("users", "items", "local_epsilon", "wanted"),
    [
        (1, 5, 2.0, 1.0),
        (100, 2, 1.0, 0.5),
        pytest.param(10_000, 20, 3.0, 0.5, marks=pytest.mark.slow),
        (2000, 20, 3.0, 0.5),
        (10**6, 10, 2.0, 0.1),
        (10**6, 1000, 20.0, 0.02),
    ],
)
def test_the_figure_is_at_most_every_other_bound(
    users: int, items: int, local_epsilon: float, wanted: float
) -> None:
    """Formula 1, the noise alone, and the local ε."""
    release = _release(
        users, items, local_epsilon, ShufflerSpec(noise=least_geometric(wanted, 1e-6))
    )
    noise = ItemNoiseRelease.of_shuffler(release.shuffler)
    formula_1 = release.amplified.epsilon(1e-6)

    smallest = min(local_epsilon, formula_1, noise.epsilon(1e-6))
    assert release.epsilon(1e-6) <= smallest * (1 + 1e-9)
    delta = release.delta(0.8 * wanted)
    assert delta <= release.amplified.delta(0.8 * wanted)
    assert delta <= release.amplified.reduction.signal * noise.delta(0.8 * wanted) * (1 + 1e-9)
