import itertools

import numpy as np
import pytest

from common.errors import TaskError
from common.mechanisms.finite_field import FiniteField

_FIELDS = [(2, 3), (3, 2), (3, 3), (5, 2), (7, 2)]


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_any_two_points_collide_under_exactly_one_seed_in_q(q: int, t: int) -> None:
    """Pairwise independence over all q^t seeds, 0 included: every pair of hashes is as likely."""
    field = FiniteField(q, t, q)
    seeds = np.arange(field.seeds)
    hashes = np.array([field.hash(seeds, np.full(field.seeds, point)) for point in seeds])

    for one, other in itertools.combinations(range(1, field.seeds), 2):
        collisions = int((hashes[one] == hashes[other]).sum())
        assert field.seeds // q == collisions


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_without_seed_0_points_collide_too_rarely(q: int, t: int) -> None:
    """The reason for the seed-0 rule: leaving it out makes collisions rarer than 1/q."""
    field = FiniteField(q, t, q)
    seeds = np.arange(1, field.seeds)
    one = field.hash(seeds, np.full(len(seeds), 1))
    other = field.hash(seeds, np.full(len(seeds), 2))

    assert (one == other).mean() < 1 / q


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_support_is_decoded_exactly(q: int, t: int) -> None:
    """The transform gives what counting report by report gives, seed 0 included."""
    field = FiniteField(q, t, q)
    rng = np.random.default_rng(5)
    seeds = rng.integers(0, field.seeds, 500)
    buckets = rng.integers(0, q, 500)
    assert (seeds == 0).any()
    cells = field.tally(seeds.astype(np.uint64), buckets.astype(np.uint32))
    points = np.arange(field.seeds)
    expected = (field.hash(seeds[None, :], points[:, None]) == buckets).sum(axis=1)

    assert 500 == cells.sum()
    np.testing.assert_allclose(field.adjoint(cells.astype(float)), expected, atol=1e-9)


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_scaling_a_report_does_not_change_its_cell(q: int, t: int) -> None:
    """(a, y) and (k·a, k·y) support the same points and share a cell."""
    field = FiniteField(q, t, q)
    digits = q ** np.arange(t)
    rng = np.random.default_rng(6)
    for _ in range(20):
        seed, bucket = int(rng.integers(1, field.seeds)), int(rng.integers(0, q))
        places = set()
        for factor in range(1, q):
            scaled = int(((seed // digits) % q * factor % q) @ digits)
            cells = field.tally(
                np.array([scaled], dtype=np.uint64),
                np.array([bucket * factor % q], dtype=np.uint32),
            )
            places.add(int(np.flatnonzero(cells)[0]))
        assert len(places) == 1


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_forward_and_adjoint_are_transposes(q: int, t: int) -> None:
    """⟨w, Aθ⟩ = ⟨Aᵀw, θ⟩ for arbitrary vectors."""
    field = FiniteField(q, t, q)
    rng = np.random.default_rng(7)
    theta, weights = rng.random(field.seeds), rng.random(field.rows * q)

    np.testing.assert_allclose(
        weights @ field.forward(theta), field.adjoint(weights) @ theta, rtol=1e-12
    )


def test_rows_count_canonical_seeds_and_seed_0() -> None:
    """(5^2 - 1)/(5 - 1) = 6 canonical seeds, and one."""
    assert FiniteField(5, 2, 5).rows == 7


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_fewer_slices_are_the_first_points_of_all(q: int, t: int) -> None:
    """Leaving slices out changes nothing about the points that stay, in either direction."""
    whole, part = FiniteField(q, t, q), FiniteField(q, t, 1)
    rng = np.random.default_rng(8)
    weights, theta = rng.random(whole.rows * q), rng.random(part.points)
    padded = np.concatenate([theta, np.zeros(whole.points - part.points)])

    np.testing.assert_allclose(part.adjoint(weights), whole.adjoint(weights)[: part.points])
    np.testing.assert_allclose(part.forward(theta), whole.forward(padded), atol=1e-12)


@pytest.mark.parametrize(
    ("q", "t", "slices", "message"),
    [
        (4, 2, 1, "prime"),
        (1, 2, 1, "prime"),
        (5, 1, 1, "at least 2"),
        (1009, 3, 1, "can be decoded"),
        (5, 2, 6, "too few digits"),
    ],
)
def test_a_field_that_cannot_be_is_refused(q: int, t: int, slices: int, message: str) -> None:
    """By the rule that it breaks."""
    with pytest.raises(TaskError, match=message):
        FiniteField(q, t, slices)


def test_items_fill_as_few_slices_as_they_can() -> None:
    """41,270 items over 101 elements: 5 slices of 10,201 points."""
    assert FiniteField(101, 3, 5) == FiniteField.holding(41_270, 101, 3)
