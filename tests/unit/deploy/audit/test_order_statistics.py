"""Tests of order: uniform orders pass them, and what is left of an order does not."""

from collections.abc import Callable

import numpy as np
import pytest

from deploy.audit.statistics import (
    TEST_LEVEL,
    Places,
    p_blocks,
    p_group_order,
    p_neighbours,
    p_rank,
    p_rank_sum,
    p_successions,
)

_N = 1800
_EACH = 3
_TESTS: dict[str, Callable[[Places], float | None]] = {
    "rank": p_rank,
    "successions": p_successions,
    "groups": lambda before: p_neighbours(before // _EACH),
    "blocks": p_blocks,
}


def _p_value(name: str, before: Places) -> float:
    """Give 1 where nothing can be tested."""
    level = _TESTS[name](before)
    return 1.0 if level is None else level


@pytest.mark.parametrize("name", _TESTS)
def test_uniform_orders_are_seldom_suspected(name: str) -> None:
    """
    Of 1000 uniform orders no more than 30 have a p-value below .01, and none a very small one.

    Seed 1; fails by chance with probability below 1e-4 over seeds.
    """
    rng = np.random.default_rng(1)
    found = np.array([_p_value(name, rng.permutation(_N)) for _ in range(1000)])

    assert np.mean(found < 0.01) <= 0.03
    assert TEST_LEVEL < found.min()


@pytest.mark.parametrize("name", _TESTS)
def test_an_order_that_was_kept_is_seen_by_every_test(name: str) -> None:
    """Of arrival itself."""
    assert TEST_LEVEL > _p_value(name, np.arange(_N))


@pytest.mark.parametrize("name", ["rank", "successions", "groups"])
def test_an_order_that_was_turned_round_is_seen(name: str) -> None:
    """Last come, first delivered."""
    assert TEST_LEVEL > _p_value(name, np.arange(_N)[::-1])


def test_blocks_that_moved_whole_are_seen() -> None:
    """Tenths in another order, each shuffled within itself: ranks of all tell little of it."""
    rng = np.random.default_rng(2)
    blocks = np.arange(_N).reshape(10, -1)[[1, 9, 4, 6, 2, 8, 3, 0, 7, 5]]
    order = np.concatenate([rng.permutation(block) for block in blocks])

    assert TEST_LEVEL > _p_value("blocks", order)
    assert TEST_LEVEL < p_rank(order)


def test_things_that_stand_in_front_are_seen() -> None:
    """Own reports before all dummies; and spread among them."""
    rng = np.random.default_rng(5)
    marked = np.arange(_N) < _N // _EACH

    assert TEST_LEVEL > p_rank_sum(marked)
    assert TEST_LEVEL < p_rank_sum(rng.permutation(marked))
    assert p_rank_sum(np.ones(4, dtype=np.bool_)) == 1


@pytest.mark.parametrize("name", _TESTS)
def test_few_reports_are_no_evidence(name: str) -> None:
    """Nothing is said of none, one or two."""
    assert all(TEST_LEVEL < _p_value(name, np.arange(n)) for n in range(3))


def test_groups_that_lie_as_they_came_are_seen() -> None:
    """Of any sizes; such as are numbered at random are not suspected."""
    rng = np.random.default_rng(5)
    came = np.split(np.arange(_N), np.sort(rng.choice(_N, size=60, replace=False)))
    numbered = [came[place] for place in rng.permutation(len(came))]

    assert TEST_LEVEL > p_group_order(came)
    assert TEST_LEVEL > p_group_order(came[::-1])
    assert TEST_LEVEL < p_group_order(numbered)
