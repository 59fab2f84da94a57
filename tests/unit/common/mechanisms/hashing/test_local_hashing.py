import math
from typing import Any

import numpy as np
import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.hashing.finite_field import HashFamily
from shuffledp.common.mechanisms.hashing.local_hashing import (
    LocalHashing,
    Placement,
    family_for,
    optimal_buckets,
)
from shuffledp.common.mechanisms.weights import ResponseWeights
from tests.support.vectors import vectors


def _hashing(domain_size: int = 100, q: int = 13, epsilon: float = 2.0) -> LocalHashing:
    return LocalHashing(
        domain_size, family_for(domain_size, q), ResponseWeights.for_epsilon(epsilon), b"n" * 32
    )


@pytest.mark.parametrize(
    ("domain_size", "buckets", "digits"),
    [(915, 53, 2), (41_270, 3, 10), (41_270, 211, 2), (41_270, 53, 3), (2000, 47, 3), (10, 3, 5)],
)
def test_digits_suffice_and_leave_enough_seeds(domain_size: int, buckets: int, digits: int) -> None:
    """The digits are the least t with q^t ≥ d and at least 50 canonical seeds."""
    assert HashFamily.holding(domain_size, buckets, digits) == family_for(domain_size, buckets)


def test_buckets_that_do_not_fit_are_refused() -> None:
    """Buckets must be prime, below the number of items, and give a field of limited size."""
    for domain_size, buckets, message in (
        (53, 53, "fewer buckets than items"),
        (915, 54, "prime"),
        (915, 1, "prime"),
        (2**24, 1009, "can be decoded"),
    ):
        with pytest.raises(TaskError, match=message):
            family_for(domain_size, buckets)
    with pytest.raises(TaskError, match="more than 2 items"):
        optimal_buckets(1.0, 2)


@pytest.mark.parametrize(
    ("local_epsilon", "domain_size", "buckets"),
    [
        (0.1, 41_270, 2),
        (1.0, 41_270, 3),
        (2.0, 41_270, 7),
        (3.0, 915, 23),
        (5.0, 915, 149),
        (8.0, 41_270, 2971),
        (8.0, 915, 911),
        (math.inf, 915, 911),
        (math.inf, 41_270, 4093),
        (5.0, 2**22, 163),
        (5.0, 2**24, 2),
        (1.0, 3, 2),
    ],
)
def test_the_optimal_buckets_are_a_prime_near_e_to_the_epsilon(
    local_epsilon: float, domain_size: int, buckets: int
) -> None:
    """They are below the number of items, and their field can be decoded."""
    assert buckets == optimal_buckets(local_epsilon, domain_size)
    assert buckets == family_for(domain_size, buckets).q


@pytest.mark.parametrize(
    ("domain_size", "buckets", "third_value"),
    [
        (58, 53, "exclusive"),
        (55, 53, "independent"),
        (123, 3, "exclusive"),
        (122, 3, "independent"),
        (915, 2, "independent"),
    ],
)
def test_a_large_domain_has_three_items_on_a_line(
    domain_size: int, buckets: int, third_value: str
) -> None:
    """More items than lines through one: 54 over F_53 with two digits, 121 over F_3 with five."""
    assert third_value == _hashing(domain_size, buckets).reduction.third_value


@pytest.mark.parametrize("case", vectors("placement"), ids=lambda case: f"size {case['size']}")
def test_placement_matches_the_vectors(case: dict[str, Any]) -> None:
    """Placement must be the same on every version and platform."""
    place = Placement(case["size"], bytes.fromhex(case["nonce"]))

    assert case["points"] == place(np.array(case["items"])).tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 1000, 2809])
def test_placement_is_a_permutation(size: int) -> None:
    """It is one for powers of two and for other sizes."""
    points = Placement(size, b"n" * 32)(np.arange(size))

    assert list(range(size)) == sorted(points.tolist())
