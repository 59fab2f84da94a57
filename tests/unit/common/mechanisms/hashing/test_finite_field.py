import itertools

import numpy as np
import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.hashing.finite_field import HashFamily

_FIELDS = [(2, 3), (3, 2), (3, 3), (5, 2), (7, 2)]


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_any_two_points_are_supported_independently(q: int, t: int) -> None:
    """Over all q^t seeds, 0 included, points collide in 1/q and share support in 1/q² of cases."""
    family = HashFamily(q, t, q)
    seeds = np.arange(family.seeds)
    hashes = np.array([family.hash(seeds, np.full(family.seeds, point)) for point in seeds])

    for first, second in itertools.combinations(hashes, 2):
        assert family.seeds // q == int((first == second).sum())
        both = sum(int(((first == y) & (second == y)).sum()) for y in range(q))
        assert both * q * q == family.seeds * q


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_support_is_decoded_exactly(q: int, t: int) -> None:
    """The transform agrees with counting each report, seed 0 included."""
    family = HashFamily(q, t, q)
    rng = np.random.default_rng(5)
    seeds = rng.integers(0, family.seeds, 500)
    buckets = rng.integers(0, q, 500)
    assert (seeds == 0).any()
    cells = family.tally(seeds.astype(np.uint64), buckets.astype(np.uint32))
    points = np.arange(family.seeds)
    expected = (family.hash(seeds[None, :], points[:, None]) == buckets).sum(axis=1)

    assert 500 == cells.sum()
    np.testing.assert_allclose(family.adjoint(cells.astype(float)), expected, atol=1e-9)


@pytest.mark.parametrize(("q", "t"), _FIELDS)
def test_fewer_slices_are_the_first_points_of_all(q: int, t: int) -> None:
    """A part of the slices gives the same sums in both directions."""
    whole, part = HashFamily(q, t, q), HashFamily(q, t, 1)
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
        (5, 2, 6, "need more digits"),
    ],
)
def test_invalid_fields_are_refused(q: int, t: int, slices: int, message: str) -> None:
    """The message states the rule."""
    with pytest.raises(TaskError, match=message):
        HashFamily(q, t, slices)


def test_items_fill_the_fewest_slices() -> None:
    """For a field of 101 elements, 41,270 items need 5 slices of 10,201 points."""
    assert HashFamily(101, 3, 5) == HashFamily.holding(41_270, 101, 3)
