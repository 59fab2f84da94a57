"""Tests of order: uniform orders pass them, and what is left of an order does not."""

from collections.abc import Callable

import numpy as np
import pytest

from deploy.audit.order_tests import (
    Places,
    of_ascents,
    of_blocks,
    of_groups,
    of_groups_on_disk,
    of_rank,
    of_ranks,
    of_same_places,
    of_successions,
)
from deploy.audit.services.order import lay_before
from deploy.audit.significance import TEST_LEVEL

_N = 1800
_EACH = 3
_TESTS: dict[str, Callable[[Places], float | None]] = {
    "rank": of_rank,
    "successions": of_successions,
    "groups": lambda before: of_groups(before // _EACH),
    "blocks": of_blocks,
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
    assert TEST_LEVEL < of_rank(order)


def test_two_orders_that_are_the_same_are_seen() -> None:
    """A permutation that is drawn once and used twice; two that are drawn are not suspected."""
    rng = np.random.default_rng(3)
    one, other = (rng.permutation(_N) // _EACH for _ in range(2))

    assert TEST_LEVEL > of_same_places(one, one)
    assert TEST_LEVEL < of_same_places(one, other)


def test_sorted_ciphertexts_are_seen() -> None:
    """Sorting is an order too, if one that tells less."""
    rng = np.random.default_rng(4)
    reports = [rng.bytes(50) for _ in range(600)]

    assert TEST_LEVEL > of_ascents(sorted(reports))
    assert TEST_LEVEL < of_ascents(reports)


def test_things_that_stand_in_front_are_seen() -> None:
    """Own reports before all dummies; and spread among them."""
    rng = np.random.default_rng(5)
    marked = np.arange(_N) < _N // _EACH

    assert TEST_LEVEL > of_ranks(marked)
    assert TEST_LEVEL < of_ranks(rng.permutation(marked))
    assert of_ranks(np.ones(4, dtype=np.bool_)) == 1


@pytest.mark.parametrize("name", _TESTS)
def test_few_reports_are_no_evidence(name: str) -> None:
    """Nothing is said of none, one or two."""
    assert all(TEST_LEVEL < _p_value(name, np.arange(n)) for n in range(3))


_LAY = [b"a", b"b", b"c", b"b"]
"""The second and the last are one report, sent twice."""
_DRAWN = np.array([2, 0, 3, 1])


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (b"abcb", True),
        (b"acbx", True),
        (b"acxb", False),
        (b"bacb", False),
        (b"abc", False),
    ],
    ids=["all", "one dropped and one added", "added among users", "two swapped", "too few"],
)
def test_reports_lay_before_as_the_order_says_or_did_not(
    before: bytes,
    expected: bool,  # noqa: FBT001  # what must come out
) -> None:
    """One that was sent twice is no other; what the shuffler added lay behind all others."""
    delivered = [before[place : place + 1] for place in _DRAWN if place < len(before)]

    assert expected is lay_before(delivered, _DRAWN, _LAY)


def test_groups_that_lie_as_they_came_are_seen() -> None:
    """Of any sizes; such as are numbered at random are not suspected."""
    rng = np.random.default_rng(5)
    came = np.split(np.arange(_N), np.sort(rng.choice(_N, size=60, replace=False)))
    numbered = [came[place] for place in rng.permutation(len(came))]

    assert TEST_LEVEL > of_groups_on_disk(came)
    assert TEST_LEVEL > of_groups_on_disk(came[::-1])
    assert TEST_LEVEL < of_groups_on_disk(numbered)
