"""
Tests of reports, dummies and orders against the distributions that the guarantees assume.

Reports on items are tested by the items that they support, by seeds and by buckets; reports on
texts, numbers and pairs by their exact distributions, cell by cell. Of small batches, all orders
are counted; of large ones, neighbours that stay neighbours, reports that keep their position, and
early reports that stay early.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shuffledp.audit import statistics
from shuffledp.audit.families.family import ReportPart
from shuffledp.audit.finding import Checks, Rows
from shuffledp.audit.scenario import AuditSubject
from shuffledp.common.crypto.randomness import secure_generator
from shuffledp.common.mechanisms.base import Reports
from shuffledp.shuffler.permutation import SealedReports, scatter

_MAX_BYTES: Final = 50_000_000
"""Maximum bytes of reports drawn for one value."""
_TESTED_VALUES: Final = 500
_TESTED_ITEMS: Final = 12
_MIN_SEEDS_PER_CELL: Final = 200
"""Minimum expected count of seeds in each tested cell."""
_PRODUCTION_DIVISOR: Final = 8
"""Divisor of the number of reports drawn from the production generator."""
Ordering = Callable[[int, Generator], statistics.Places]
Permute = Callable[[SealedReports, Generator], SealedReports]

_ORDERINGS: Final = (("in one bucket", 1, 1.0), ("in buckets", 3, 0.1))
"""Name and number of buckets of each ordering, and its share of the draws."""
_SMALL_BATCHES: Final = (2, 3, 4)
_MIN_EXPECTED: Final = 105
"""Minimum expected count of each order of a small batch."""
_LARGE_BATCH: Final = 20_000
_MAX_LARGE_BATCHES: Final = 20
_BLOCKS: Final = 20
_MAX_DISTANCE: Final = 10
"""Maximum arrival distance at which delivered neighbours count as near."""


def run_randomizer(subject: AuditSubject, rng: Generator) -> Rows:
    """Test the audited task's reports, and the dummies of tasks on items."""
    checks, family = Checks(), subject.family
    if subject.of_items:
        _check_items(checks, subject, rng)
    else:
        for value in (*family.worst_values[0], family.usual_value):
            each = family.reports_each(subject.sizes.games)
            reports = subject.ports.draw_reports(family, value, each, rng)
            _check_parts(checks, family.report_parts(value, reports))
    yield checks.finding(
        heading="correctness",
        sentence="The running code draws reports and dummies with the probabilities from which all "
        "guarantees are computed.",
        trials=subject.sizes.reports,
        advice="Do not collect with this version: its guarantees do not describe it.",
    )


def _check_items(checks: Checks, subject: AuditSubject, rng: Generator) -> None:
    task, mechanism, family = subject.task, subject.mechanism, subject.family
    draw = partial(subject.ports.draw_reports, family)
    number = min(subject.sizes.reports, _MAX_BYTES // mechanism.report_dtype.itemsize)
    for name, count, source in (
        ("every value", subject.sizes.reports, rng),
        ("every value, production generator", number // _PRODUCTION_DIVISOR, secure_generator()),
    ):
        values = np.unique(np.linspace(0, task.domain_size - 1, _TESTED_VALUES).astype(np.int64))
        each = max(1, count // len(values))
        own = [
            int(mechanism.supports(draw(value, each, source), value).sum())
            for value in values.tolist()
        ]
        p_value = statistics.p_shares(own, each * task.own_reports, family.support.own)
        checks.test(f"a report: {name}", p_value)
    samples: list[tuple[int | None, Reports]] = [
        (value, draw(value, number, rng)) for value in (0, task.domain_size - 1)
    ]
    if task.protocol_row.dummy_distributions:
        samples.append((None, mechanism.dummies(number, rng)))
    for value, reports in samples:
        what = "a dummy" if value is None else "a report"
        checks.require(f"{what}: valid", bool(mechanism.valid(reports).all()))
        _check_support(checks, subject, reports, value)
        if "seed" in (reports.dtype.names or ()):
            _check_seeds(checks, what, family.n_seeds, reports["seed"].astype(np.uint64))
        # Of a report on a value, the place is relative to the value's.
        if (found := family.place_chances(reports, value)) is not None:
            checks.cells(f"{what}: buckets and positions", *found)


def _check_support(
    checks: Checks, subject: AuditSubject, reports: Reports, value: int | None
) -> None:
    """Test how often reports on a value, or dummies, support one item and two at once."""
    mechanism, support = subject.mechanism, subject.family.support
    last = mechanism.domain_size - 1
    for item in np.unique(np.linspace(0, last, _TESTED_ITEMS).astype(int)).tolist():
        if value is None:
            name, chance = "a dummy supports an item", support.dummy
        elif item == value:
            name, chance = "a report supports its item", support.own
        elif support.far_only and item != last - value:
            continue
        else:
            name, chance = "a report supports another item", support.other
        supporting = int(mechanism.supports(reports, item).sum())
        checks.test(name, statistics.p_binomial(supporting, len(reports), chance))
    if value is not None and not support.far_only:
        both = mechanism.supports(reports, value) & mechanism.supports(reports, last - value)
        p_value = statistics.p_binomial(int(both.sum()), len(reports), support.both)
        checks.test("a report supports both of two items", p_value)


def _check_seeds(checks: Checks, what: str, number: int, seeds: NDArray[np.uint64]) -> None:
    """Test that seeds are uniform, and that neighbours have equal seeds only by chance."""
    # A power of two, to detect parity; test low digits first, then high ones.
    cells = min(number, 1 << max(1, (len(seeds) // _MIN_SEEDS_PER_CELL).bit_length() - 1))
    evenly = np.full(cells, number // cells, dtype=np.float64)
    evenly[: number % cells] += 1
    checks.cells(f"{what}: uniform seeds", (seeds % np.uint64(cells)).astype(np.int64), evenly)
    width = -(-number // cells)
    sizes = np.full(-(-number // width), float(width))
    sizes[-1] = number - width * (len(sizes) - 1)
    checks.cells(f"{what}: ranges of seeds", (seeds // np.uint64(width)).astype(np.int64), sizes)
    # Without seed 0 the hash family is not pairwise independent.
    p_zero = statistics.p_poisson(int((seeds == 0).sum()), len(seeds) / number)
    checks.test(f"{what}: seed 0 as often as any other", p_zero)
    same = int((seeds[1:] == seeds[:-1]).sum())
    p_same = statistics.p_poisson(same, (len(seeds) - 1) / number)
    checks.test(f"{what}: neighbours with equal seeds", p_same)


def _check_parts(checks: Checks, parts: Iterable[ReportPart]) -> None:
    """Test each part of reports on texts, numbers or pairs against its distribution."""
    levels: dict[str, list[float]] = {}
    for part in parts:
        for number, chances in enumerate(part.chances):
            cells = part.cells if part.which is None else part.cells[part.which == number]
            seen = np.bincount(cells, minlength=len(chances))
            checks.require(f"{part.name}: within the range", len(seen) == len(chances))
            p_value = statistics.p_cells(seen[: len(chances)], chances)
            levels.setdefault(part.name, []).extend([] if p_value is None else [p_value])
    for name, found in levels.items():
        checks.test(f"the distribution of {name}", statistics.joint_p(found) if found else None)


def _order(n: int, rng: Generator, permute: Permute, *, buckets: int) -> statistics.Places:
    """
    Order n reports, which contain their arrival index, like the shuffler.

    Into several buckets, they are scattered in many parts, like a large batch.
    """
    parts = max(1, n // 3) if buckets > 1 else 1
    arrived: SealedReports = np.arange(n, dtype=np.uint32).view(np.uint8).reshape(n, 4)
    scattered = [scatter(reports, buckets, rng) for reports in np.array_split(arrived, parts)]
    filled = [np.concatenate(reports) for reports in zip(*scattered, strict=True)]
    ordered = np.concatenate([permute(bucket, rng) for bucket in filled])
    return ordered.view(np.uint32)[:, 0].astype(np.int64)


def run_orders(subject: AuditSubject, rng: Generator) -> Rows:
    """Test that orderings are uniform."""
    checks, sizes = Checks(), subject.sizes.orders
    for name, buckets, share in _ORDERINGS:
        ordering = partial(_order, permute=subject.ports.permute, buckets=buckets)
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


def check_order(checks: Checks, name: str, order: statistics.Places) -> None:
    """Test one order of thousands of reports."""
    n, places = len(order), np.arange(len(order))
    checks.require(f"{name}: nothing is lost", bool((np.sort(order) == places).all()))
    checks.test(f"{name}: neighbours stay neighbours", statistics.p_successions(order))
    steps = np.abs(np.diff(order))
    near = 2 * sum(n - step for step in range(1, _MAX_DISTANCE + 1)) / n
    seen = int((steps <= _MAX_DISTANCE).sum())
    checks.test(f"{name}: neighbours stay near", statistics.p_poisson(seen, near))
    checks.test(f"{name}: positions kept", statistics.p_poisson(int((order == places).sum()), 1.0))
    checks.test(f"{name}: early stays early", statistics.p_rank(order))
    checks.test(f"{name}: blocks spread", statistics.p_blocks(order, _BLOCKS))


def _check_every_order(
    checks: Checks, name: str, ordering: Ordering, drawn: tuple[int, int], rng: Generator
) -> None:
    """Test that all orders are equally likely. `drawn`: number of draws, reports per draw."""
    orders, size = drawn
    numbers = {order: number for number, order in enumerate(itertools.permutations(range(size)))}
    seen = [numbers.get(tuple(ordering(size, rng).tolist()), -1) for _ in range(orders)]
    checks.cells(f"{name}: all orders of {size}", np.array(seen), np.ones(len(numbers)))
