"""
Whether the order of a batch is uniform, and rests on nothing but the generator it is drawn from.

Small batches are ordered so often that every order can be counted; of large ones what an attacker
would look for is: neighbours that stay neighbours, reports that stay where or near where they came,
an early half that comes early. Order that is drawn with a generator of its own, or with one that is
seeded from a few words, shows by what is taken from the generator that was handed in: n reports
have n! orders, and fewer than log2(n!) random bits cannot draw them all.
"""

import itertools
import math
import random
from collections.abc import Callable
from typing import Final

import numpy as np

from common.crypto.randomness import secure_generator
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.replay import Order
from deploy.audit.code.taken import bits_taken
from deploy.audit.finding import Outcome
from deploy.audit.order_tests import of_blocks
from shuffler.permutation import ExternalShuffle, Reports, permute

Ordering = Callable[[int, np.random.Generator], Order]

_SMALL: Final = (2, 3, 4, 5)
_MATRIX: Final = 30
_EACH: Final = 105
"""Times that each order of a few is expected at least, and half as often each place of many."""
_LARGE: Final = 20_000
_MOST_ORDERS: Final = 20
"""Large orders, each of which takes nine decisions."""
_BLOCKS: Final = 20
_NEAR: Final = 10
_TOGETHER: Final = 1000
"""Reports that a shuffler delivers together."""


class Memory:
    """Buckets that lie in memory."""

    def __init__(self) -> None:
        self._records: dict[int, list[bytes]] = {}

    def append(self, bucket: int, reports: bytes) -> None:
        """Add a record to a bucket."""
        self._records.setdefault(bucket, []).append(reports)

    def take(self, bucket: int) -> list[bytes]:
        """Read a bucket's records, and remove it."""
        return self._records.pop(bucket, [])


def in_memory(n: int, rng: np.random.Generator) -> Order:
    """Order n reports as a batch that fits into memory is."""
    return places_of(permute(numbered(n), rng))


def in_buckets(n: int, rng: np.random.Generator) -> Order:
    """Order n reports as a batch is that is thrown into buckets: three, from a small buffer."""
    shuffle = ExternalShuffle(
        report_bytes=4, buckets=Memory(), n_buckets=3, rng=rng, buffer_bytes=max(4, n)
    )
    for group in np.array_split(numbered(n), max(1, n // 3)):
        shuffle.add(group)
    parts = [places_of(part) for part in shuffle.permuted(_TOGETHER)]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def numbered(n: int) -> Reports:
    """Make n reports that say where they came."""
    return np.arange(n, dtype=np.uint32).view(np.uint8).reshape(n, 4)


def places_of(reports: Reports) -> Order:
    """Read where such reports came."""
    return np.ascontiguousarray(reports).view(np.uint32)[:, 0].astype(np.int64)


def play_orders(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Test both ways in which a batch is put in order."""
    checks, effort = Checks(), audited.effort.orders
    for name, ordering, share in (
        ("in memory", in_memory, 1.0),
        ("in buckets", in_buckets, 0.1),
    ):
        for size in _SMALL:
            least = _EACH * math.factorial(size)
            orders = max(least, int(share * effort / 20))
            _check_every_order(checks, name, ordering, orders, size, rng)
        orders = max(_EACH * _MATRIX // 2, int(share * effort / 20 / _MATRIX))
        _check_places(checks, name, ordering, orders, rng)
        for _ in range(min(_MOST_ORDERS, max(2, int(share * effort / 10) // _LARGE))):
            check_order(checks, name, ordering(_LARGE, rng))
        _check_source(checks, name, ordering)
        _check_production(checks, f"{name}, by production's generator", ordering)
    finding = checks.finding(
        scenario="orders",
        title="Every order of a batch is as likely",
        heading="anonymity",
        coalition="analyzer",
        sentence=f"In batches of up to {_LARGE:,} reports the place of a report told nothing that "
        "these tests see of when it came, or of what came next to it.",
        trials=effort,
        advice="Do not collect with this version: whoever sends first can be found.",
    )
    return Outcome(findings=(finding,))


def _check_every_order(  # noqa: PLR0917  # what is tested, and how much
    checks: Checks, name: str, ordering: Ordering, orders: int, size: int, rng: np.random.Generator
) -> None:
    numbered = {order: number for number, order in enumerate(itertools.permutations(range(size)))}
    seen = np.zeros(len(numbered), dtype=np.int64)
    for _ in range(orders):
        place = numbered.get(tuple(ordering(size, rng).tolist()))
        checks.must(f"{name}: nothing is lost", place is not None)
        if place is not None:
            seen[place] += 1
    checks.test(f"{name}: all orders of {size}", fit.of_cells(seen, np.ones(len(seen))))


def _check_places(
    checks: Checks, name: str, ordering: Ordering, orders: int, rng: np.random.Generator
) -> None:
    landed = np.zeros((_MATRIX, _MATRIX), dtype=np.int64)
    for _ in range(orders):
        landed[ordering(_MATRIX, rng), np.arange(_MATRIX)] += 1
    checks.test(f"{name}: where each of {_MATRIX} lands", fit.of_table(landed))


def check_order(checks: Checks, name: str, order: Order) -> None:
    """
    Test one order of many reports.

    Args:
        checks: Where the tests are noted.
        name: Whose order it is.
        order: Places of arrival 0 .. n-1 in the order of departure, n of some thousand or more.
    """
    n, places = len(order), np.arange(len(order))
    checks.must(f"{name}: nothing is lost", bool((np.sort(order) == places).all()))
    steps = np.diff(order)
    checks.test(f"{name}: neighbours stay", fit.of_number(int((steps == 1).sum()), (n - 1) / n))
    checks.test(f"{name}: neighbours turn", fit.of_number(int((steps == -1).sum()), (n - 1) / n))
    near = 2 * sum(n - step for step in range(1, _NEAR + 1)) / n
    close = int((np.abs(steps) <= _NEAR).sum())
    checks.test(f"{name}: neighbours stay near", fit.of_number(close, near))
    rises = int((steps > 0).sum())
    checks.test(f"{name}: rises", fit.of_normal(rises, (n - 1) / 2, math.sqrt((n + 1) / 12)))
    still = int((order == places).sum())
    checks.test(f"{name}: places kept", fit.of_number(still, 1.0))
    about = int((np.abs(order - places) <= _NEAR).sum())
    checks.test(f"{name}: places nearly kept", fit.of_number(about, 2 * _NEAR + 1))
    rank = float(np.corrcoef(order, places)[0, 1])
    checks.test(f"{name}: early stays early", fit.of_normal(rank, 0.0, 1 / math.sqrt(n - 1)))
    checks.test(f"{name}: blocks spread", of_blocks(order, _BLOCKS))


def _check_source(checks: Checks, name: str, ordering: Ordering) -> None:
    """Check that an order follows from the generator handed in, and takes enough from it."""
    before = _global_sources()
    first, again, other = (
        ordering(_LARGE, np.random.Generator(np.random.Philox(key=key))) for key in (1, 1, 2)
    )
    checks.must(f"{name}: the order follows from its generator", bool((first == again).all()))
    checks.must(f"{name}: another generator, another order", bool((first != other).any()))
    counted = np.random.Philox(key=3)
    ordering(_LARGE, np.random.Generator(counted))
    checks.must(
        f"{name}: as many random bits as there are orders",
        bits_taken(counted) >= math.lgamma(_LARGE + 1) / math.log(2),
    )
    checks.must(f"{name}: no other source of randomness", before == _global_sources())


def _check_production(checks: Checks, name: str, ordering: Ordering) -> None:
    """Test orders by the generator that services hand in: nothing may depend on which it is."""
    for _ in range(2):
        check_order(checks, name, ordering(_LARGE, secure_generator()))
    _check_every_order(checks, name, ordering, _EACH * math.factorial(4), 4, secure_generator())


def _global_sources() -> tuple[object, str]:
    """Give the states of the generators that nobody hands in."""
    return random.getstate(), repr(np.random.get_state())  # noqa: NPY002  # to see it unused
