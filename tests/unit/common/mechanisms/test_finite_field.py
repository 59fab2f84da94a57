import itertools

import numpy as np
import pytest

from common.mechanisms.finite_field import FiniteField

_FIELDS = [(2, 3), (3, 2), (3, 3), (5, 2), (7, 2)]


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_any_two_points_collide_under_exactly_one_seed_in_q(q: int, t: int) -> None:
    """Pairwise independence over all q^t seeds, 0 included: every pair of hashes is as likely."""
    field = FiniteField(q, t)
    seeds = np.arange(field.size)
    hashes = np.array([field.hash(seeds, np.full(field.size, point)) for point in seeds])

    for one, other in itertools.combinations(range(1, field.size), 2):
        collisions = int((hashes[one] == hashes[other]).sum())
        assert field.size // q == collisions


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_without_seed_0_points_collide_too_rarely(q: int, t: int) -> None:
    """The reason for the seed-0 rule: leaving it out makes collisions rarer than 1/q."""
    field = FiniteField(q, t)
    seeds = np.arange(1, field.size)
    one = field.hash(seeds, np.full(len(seeds), 1))
    other = field.hash(seeds, np.full(len(seeds), 2))

    assert (one == other).mean() < 1 / q


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_support_is_decoded_exactly(q: int, t: int) -> None:
    """The transform gives what counting report by report gives, seed 0 included."""
    field = FiniteField(q, t)
    rng = np.random.default_rng(5)
    seeds = rng.integers(0, field.size, 500)
    buckets = rng.integers(0, q, 500)
    assert (seeds == 0).any()
    cells = field.tally(seeds.astype(np.uint64), buckets.astype(np.uint32))
    points = np.arange(field.size)
    expected = (field.hash(seeds[None, :], points[:, None]) == buckets).sum(axis=1)

    assert 500 == cells.sum()
    np.testing.assert_allclose(field.adjoint(cells.astype(float)), expected, atol=1e-9)


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_scaling_a_report_does_not_change_its_cell(q: int, t: int) -> None:
    """(a, y) and (k·a, k·y) support the same points and share a cell."""
    field = FiniteField(q, t)
    digits = q ** np.arange(t)
    rng = np.random.default_rng(6)
    for _ in range(20):
        seed, bucket = int(rng.integers(1, field.size)), int(rng.integers(0, q))
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
    field = FiniteField(q, t)
    rng = np.random.default_rng(7)
    theta, weights = rng.random(field.size), rng.random(field.rows * q)

    np.testing.assert_allclose(
        weights @ field.forward(theta), field.adjoint(weights) @ theta, rtol=1e-12
    )


def test_rows_count_canonical_seeds_and_seed_0() -> None:
    """(5^2 - 1)/(5 - 1) = 6 canonical seeds, and one."""
    assert FiniteField(5, 2).rows == 7
