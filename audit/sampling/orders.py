"""
Tests that the order of a batch is uniform.

For small batches, all orders are counted; for large ones, neighbours that stay neighbours, reports
that keep their position, and early reports that stay early.
"""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from numpy.random import Generator

from audit.finding import Checks, Rows
from audit.scenario import AuditSubject
from audit.statistics import Places, p_blocks, p_poisson, p_rank, p_successions
from common.crypto.randomness import secure_generator
from shuffler.permutation import SealedReports, scatter

Ordering = Callable[[int, Generator], Places]
Permute = Callable[[SealedReports, Generator], SealedReports]

_SMALL_BATCHES: Final = (2, 3, 4)
_MIN_EXPECTED: Final = 105
"""Minimum expected count of each order of a small batch."""
_LARGE_BATCH: Final = 20_000
_MAX_LARGE_BATCHES: Final = 20
_BLOCKS: Final = 20
_MAX_DISTANCE: Final = 10
"""Maximum arrival distance at which delivered neighbours count as near."""


def shuffled(
    n: int, rng: Generator, permute: Permute, *, parts: int = 1, buckets: int = 1
) -> Places:
    """Order n reports, which contain their arrival index, like the shuffler."""
    arrived: SealedReports = np.arange(n, dtype=np.uint32).view(np.uint8).reshape(n, 4)
    scattered = [scatter(reports, buckets, rng) for reports in np.array_split(arrived, parts)]
    filled = [np.concatenate(reports) for reports in zip(*scattered, strict=True)]
    ordered = np.concatenate([permute(bucket, rng) for bucket in filled])
    return ordered.view(np.uint32)[:, 0].astype(np.int64)


def in_buckets(n: int, rng: Generator, permute: Permute) -> Places:
    """Order n reports like a large batch, with many parts and three buckets."""
    return shuffled(n, rng, permute, parts=max(1, n // 3), buckets=3)


_ORDERINGS: Final = {"in one bucket": (shuffled, 1.0), "in buckets": (in_buckets, 0.1)}
"""Orderings by name, each with its share of the draws."""


def run_orders(subject: AuditSubject, rng: Generator) -> Rows:
    """Test that orderings are uniform."""
    checks, sizes = Checks(), subject.sizes.orders
    for name, (ordered, share) in _ORDERINGS.items():
        ordering = partial(ordered, permute=subject.ports.permute)
        for size in _SMALL_BATCHES:
            orders = max(_MIN_EXPECTED * math.factorial(size), int(share * sizes / 20))
            _check_every_order(checks, name, ordering, (orders, size), rng)
        for _ in range(min(_MAX_LARGE_BATCHES, max(2, int(share * sizes / 10) // _LARGE_BATCH))):
            check_order(checks, name, ordering(_LARGE_BATCH, rng))
        secure = f"{name}, with the production generator"
        _check_every_order(checks, secure, ordering, (_MIN_EXPECTED * 24, 4), secure_generator())
        check_order(checks, secure, ordering(_LARGE_BATCH, secure_generator()))
    yield checks.finding(
        coalition="analyzer",
        sentence=f"In batches of up to {_LARGE_BATCH:,} reports, these tests found no relation "
        "between a report's position and its arrival or its neighbours.",
        trials=sizes,
        advice="Do not collect with this version: the order of a batch reveals who sent when.",
    )


def check_order(checks: Checks, name: str, order: Places) -> None:
    """Test one order of thousands of reports."""
    n, places = len(order), np.arange(len(order))
    checks.require(f"{name}: nothing is lost", bool((np.sort(order) == places).all()))
    checks.test(f"{name}: neighbours stay neighbours", p_successions(order))
    steps = np.abs(np.diff(order))
    near = 2 * sum(n - step for step in range(1, _MAX_DISTANCE + 1)) / n
    seen = int((steps <= _MAX_DISTANCE).sum())
    checks.test(f"{name}: neighbours stay near", p_poisson(seen, near))
    checks.test(f"{name}: positions kept", p_poisson(int((order == places).sum()), 1.0))
    checks.test(f"{name}: early stays early", p_rank(order))
    checks.test(f"{name}: blocks spread", p_blocks(order, _BLOCKS))


def _check_every_order(
    checks: Checks, name: str, ordering: Ordering, drawn: tuple[int, int], rng: Generator
) -> None:
    """Test that all orders are equally likely. `drawn`: number of draws, reports per draw."""
    orders, size = drawn
    numbers = {order: number for number, order in enumerate(itertools.permutations(range(size)))}
    seen = [numbers.get(tuple(ordering(size, rng).tolist()), -1) for _ in range(orders)]
    checks.cells(f"{name}: all orders of {size}", np.array(seen), np.ones(len(numbers)))
