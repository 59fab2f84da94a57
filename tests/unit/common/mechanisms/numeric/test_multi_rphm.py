import dataclasses
import itertools

import numpy as np
import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.numeric.coordinate_sampling import (
    MultiHm,
    MultiRphm,
    paper_projected,
    projection,
)
from shuffledp.common.mechanisms.registry import mean_mechanism_of
from tests.support.changed_tasks import changed
from tests.support.kind_tasks import kind_task
from tests.support.mechanisms import NONCE
from tests.support.numbers import spec_for


def test_a_projection_matches_its_vector() -> None:
    """No library version may change the projection of a given nonce."""
    expected = [
        [-0.05260704075947498, -0.7139737757738451],
        [-0.6240099408223887, -0.04577140332781044],
        [-0.714805752824447, 0.35464916993650664],
        [0.3112825545167058, 0.6019720860704331],
    ]
    np.testing.assert_allclose(projection(bytes(32), 4, 2), expected, atol=1e-12)


@pytest.mark.parametrize(("dimensions", "projected"), [(1, 1), (2, 1), (5, 2), (400, 120)])
def test_the_projection_has_three_tenths_of_the_dimensions(dimensions: int, projected: int) -> None:
    """The number is rounded, and at least 1."""
    assert projected == paper_projected(dimensions)
    assert projected == spec_for("multi-rphm", dimensions=dimensions).projected


@pytest.mark.parametrize("local_epsilon", [0.5, 1.0, 6.0])
def test_the_expected_estimate_and_its_variance_are_exact(local_epsilon: float) -> None:
    """
    They agree with a sum over all sets of coordinates, for two people, one of whom is clipped.

    A report represents Y·Rᵀ. If coordinates i and l are covered, E[Y_i Y_l] is (q/k)²·x_i·x_l for
    i ≠ l, and (q/k)² times the hybrid's second moment for i = l.
    """
    mechanism = dataclasses.replace(MultiRphm.for_epsilon(9, local_epsilon), nonce=NONCE)
    values = np.random.default_rng(1).uniform(-1, 1, (2, 9))
    values[0] = np.where(mechanism.matrix[:, 0] > 0, 1.0, -1.0)  # its projection is clipped
    q, k = mechanism.projected, mechanism.sampled
    sets = list(itertools.combinations(range(q), k))
    projected = np.clip(values @ mechanism.matrix, -1, 1)
    total = np.zeros(9)
    for x in projected:
        second = np.zeros((q, q))
        own = mechanism.answer.spread.second_moment(x)
        for chosen in sets:
            here = np.zeros(q)
            here[list(chosen)] = x[list(chosen)]
            products = np.outer(here, here)
            products[chosen, chosen] = own[list(chosen)]
            second += products * (q / k) ** 2 / len(sets)
        covariance = second - np.outer(x, x)
        total += np.diag(mechanism.matrix @ covariance @ mechanism.matrix.T)

    np.testing.assert_allclose(total / 4, mechanism.variance(values), rtol=1e-9)
    expected = mechanism.matrix @ projected.mean(axis=0)
    np.testing.assert_allclose(expected - values.mean(axis=0), mechanism.bias(values), atol=1e-12)
    assert (np.abs(values @ mechanism.matrix) > 1).any()


def test_it_is_as_private_as_multi_hm() -> None:
    """The projection depends on no value, so ε and reduction are those of Multi-HM."""
    mechanism = MultiRphm.for_epsilon(9, 6.0)
    inner = MultiHm.for_epsilon(3, 6.0)

    assert (inner.answer, inner.sampled) == (mechanism.answer, mechanism.sampled)
    assert inner.report_dtype == mechanism.report_dtype
    assert inner.local_epsilon == mechanism.local_epsilon
    assert inner.reduction == mechanism.reduction
    assert mechanism.keeps_promise(6.0)
    assert not mechanism.keeps_promise(5.9)


def test_a_projection_to_more_dimensions_is_refused() -> None:
    """A projection to 6 of 5 dimensions raises TaskError."""
    task = kind_task("multi-rphm", domain_size=20)
    with pytest.raises(TaskError, match="projected 6; a person has only 5 numbers"):
        changed(task, domain_size=5)


def test_the_projection_follows_from_the_tasks_nonce() -> None:
    """The mechanism of a task has the projection of the task's nonce."""
    task = kind_task("multi-rphm")
    mechanism = mean_mechanism_of(task)

    assert isinstance(mechanism, MultiRphm)
    assert task.nonce == mechanism.nonce
    expected = projection(task.nonce, mechanism.dimensions, mechanism.projected)
    assert expected.tolist() == mechanism.matrix.tolist()
