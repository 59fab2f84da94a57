import hashlib
import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest

from common.errors import TaskError, ValueRangeError
from common.mechanisms.numeric.coordinate_sampling import Harmony, MultiHm
from common.mechanisms.numeric.multi_rphm import MultiRphm, paper_projected, projection
from tests.support.mechanisms import NONCE
from tests.support.numbers import built, spec_for
from tests.support.tasks import published


@pytest.mark.parametrize(("dimensions", "projected"), [(1, 1), (7, 2), (50, 15), (5, 5)])
def test_a_projection_is_orthonormal_and_its_nonces_alone(dimensions: int, projected: int) -> None:
    """RᵀR = I; the same nonce gives the same R, another one another."""
    matrix = projection(NONCE, dimensions, projected)

    np.testing.assert_allclose(matrix.T @ matrix, np.eye(projected), atol=1e-13)
    assert matrix.tolist() == projection(NONCE, dimensions, projected).tolist()
    assert matrix.tolist() != projection(b"m" * 32, dimensions, projected).tolist() or (
        dimensions == 1
    )


def test_a_projection_is_fixed_for_good() -> None:
    """A vector of a nonce of zeros, to 1e-12: no library's version may change it."""
    expected = [
        [-0.05260704075947498, -0.7139737757738451],
        [-0.6240099408223887, -0.04577140332781044],
        [-0.714805752824447, 0.35464916993650664],
        [0.3112825545167058, 0.6019720860704331],
    ]
    np.testing.assert_allclose(projection(bytes(32), 4, 2), expected, atol=1e-12)


@pytest.mark.parametrize("byte", range(8))
def test_columns_are_those_of_gram_and_schmidt(byte: int) -> None:
    """By hand: eight bytes a number, its upper 53 bits, Φ⁻¹, column by column without signs."""
    d, q, nonce = 5, 3, bytes([byte]) * 32
    stream = hashlib.shake_256(b"shuffledp v1 projection" + nonce).digest(8 * d * q)
    words = [int.from_bytes(stream[at : at + 8], "little") for at in range(0, len(stream), 8)]
    normal = [NormalDist().inv_cdf(((word >> 11) + 0.5) / 2**53) for word in words]
    columns: list[list[float]] = []
    for column in range(q):
        rest = normal[column::q]
        for other in columns:
            along = math.fsum(a * b for a, b in zip(rest, other, strict=True))
            rest = [value - along * part for value, part in zip(rest, other, strict=True)]
        length = math.hypot(*rest)
        columns.append([value / length for value in rest])

    np.testing.assert_allclose(projection(nonce, d, q).T, columns, atol=1e-9)


def test_projections_are_uniform_over_subspaces() -> None:
    """
    Over 4,000 nonces RRᵀ is q/d·I on average, and each entry of R is as often above 0 as below.

    The nonces are fixed; entries of RRᵀ have standard deviations below .25, means below .004: seven
    of these are allowed, over 16 entries (1e-10 over labels), and seven of a fair coin's.
    """
    matrices = [projection(byte.to_bytes(32, "little"), 4, 2) for byte in range(4000)]
    mean = np.mean([matrix @ matrix.T for matrix in matrices], axis=0)
    positive = np.mean([matrix > 0 for matrix in matrices], axis=0)

    np.testing.assert_allclose(mean, np.eye(4) / 2, atol=0.028)
    np.testing.assert_allclose(positive, 0.5, atol=7 * 0.5 / np.sqrt(4000))


@pytest.mark.parametrize(("dimensions", "projected"), [(1, 1), (2, 1), (5, 2), (400, 120)])
def test_three_tenths_of_the_dimensions_are_left(dimensions: int, projected: int) -> None:
    """The paper's .3·d, to the nearest, at least 1."""
    assert projected == paper_projected(dimensions)
    assert projected == spec_for("multi-rphm", dimensions=dimensions).projected


@pytest.mark.parametrize("local_epsilon", [0.5, 1.0, 6.0])
def test_the_expected_estimate_and_its_variance_are_exact(local_epsilon: float) -> None:
    """
    Against all sets of coordinates and the hybrid's moments, for two people, clipping included.

    A report stands for Y·Rᵀ. Over the answers' own noise E[Y_i Y_l] of two told coordinates is
    (q/k)²·x_i·x_l, of one (q/k)² times the hybrid's second moment.
    """
    mechanism = MultiRphm.for_epsilon(9, local_epsilon, NONCE)
    values = np.random.default_rng(1).uniform(-1, 1, (2, 9))
    values[0] = np.where(mechanism.matrix[:, 0] > 0, 1.0, -1.0)  # its projection is clipped
    q, k = mechanism.inner.dimensions, mechanism.inner.sampled
    sets = list(itertools.combinations(range(q), k))
    told = np.clip(values @ mechanism.matrix, -1, 1)
    total = np.zeros(9)
    for x in told:
        second = np.zeros((q, q))
        own = mechanism.inner.answer.spread.second_moment(x)
        for chosen in sets:
            here = np.zeros(q)
            here[list(chosen)] = x[list(chosen)]
            products = np.outer(here, here)
            products[chosen, chosen] = own[list(chosen)]
            second += products * (q / k) ** 2 / len(sets)
        covariance = second - np.outer(x, x)
        total += np.diag(mechanism.matrix @ covariance @ mechanism.matrix.T)

    np.testing.assert_allclose(total / 4, mechanism.variance(values), rtol=1e-9)
    expected = mechanism.matrix @ told.mean(axis=0)
    np.testing.assert_allclose(expected - values.mean(axis=0), mechanism.bias(values), atol=1e-12)
    assert (np.abs(values @ mechanism.matrix) > 1).any()


def test_estimates_are_called_biased() -> None:
    """So that nobody is shown an interval."""
    mechanism = MultiRphm.for_epsilon(9, 1.0, NONCE)
    moments = mechanism.estimate(mechanism.tally(np.zeros(0, dtype=mechanism.report_dtype)))

    assert not moments.unbiased
    assert not moments.means.any()
    assert np.isinf(moments.variances).all()


def test_it_is_as_private_as_what_it_is_built_on() -> None:
    """The matrix knows nobody's numbers."""
    mechanism = MultiRphm.for_epsilon(9, 6.0, NONCE)
    inner = MultiHm.for_epsilon(3, 6.0)

    assert inner == mechanism.inner
    assert inner.local_epsilon == mechanism.local_epsilon
    assert inner.reduction == mechanism.reduction
    assert mechanism.keeps_promise(6.0)
    assert not mechanism.keeps_promise(5.9)


def test_more_dimensions_than_there_are_cannot_be_projected_to() -> None:
    """A projection forgets."""
    spec = spec_for("multi-rphm", dimensions=20)
    with pytest.raises(TaskError, match="projected is 6; it must be at most 5"):
        built(spec, 5)


def test_numbers_out_of_range_are_refused_before_they_are_projected() -> None:
    """Clipping would hide them."""
    mechanism = MultiRphm.for_epsilon(9, 1.0, NONCE)
    values = np.zeros((1, 9))
    for wrong in (1.5, np.nan, np.inf):
        values[0, 4] = wrong
        with pytest.raises(ValueRangeError) as refusal:
            mechanism.randomize(values, np.random.default_rng(1))
        assert str(wrong) not in str(refusal.value)


def test_a_task_gives_it_its_nonce() -> None:
    """Of two tasks that say the same of the mechanism, each has its own matrix."""
    spec = spec_for("multi-rphm", dimensions=5)
    task = published(domain_size=5, buckets=0).task
    object.__setattr__(task, "mechanism", spec)  # tasks about numbers are another floor's
    mechanism = MultiRphm.of(task)

    assert task.nonce == mechanism.nonce
    assert projection(task.nonce, 5, 2).tolist() == mechanism.matrix.tolist()
    harmony = spec_for("harmony", dimensions=5)
    object.__setattr__(task, "mechanism", harmony)
    assert 5 == Harmony.of(task).dimensions
