"""
Whole tables where the domain is small: what is told of every value, and of every two bits.

What a report tells of the first and the last item says nothing of those between, and each bit by
itself says nothing of two that go together.
"""

import itertools
from typing import Final

import numpy as np

from common.mechanisms.base import Mechanism, Reports
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.registry import mechanism_of
from common.mechanisms.support import SupportCounting
from common.mechanisms.unary import UnaryEncoding
from common.task.task import Task
from deploy.audit import fit
from deploy.audit.checks import Checks
from deploy.audit.laws.support_law import SupportLaw, support_law

NAMING: Final = frozenset({"grr", "warner", "square-wave"})
"""Mechanisms whose reports name one of the items, or of the places on a line."""
_SMALL: Final = 16
_COUNTED: Final = 2000
"""Reports whose counts by cell are compared with what each supports."""


def check_tables(checks: Checks, task: Task, reports: int, rng: np.random.Generator) -> None:
    """
    Test reports of every value of a small domain, of two values of a large one.

    Args:
        checks: Where the tests are noted, under the mechanism's name.
        task: Whose mechanism.
        reports: To be drawn, of all values together.
        rng: Of all draws.
    """
    mechanism, law, size = mechanism_of(task), support_law(task), task.domain_size
    held = range(size) if size <= _SMALL else (size // 3, size - 2)
    for value in held:
        sent = mechanism.randomize(np.full(reports // len(held), value, dtype=np.int64), rng)
        _check_cells(checks, task, mechanism, sent, (value, law.own))
        if value == size // 2:
            _check_bits(checks, mechanism, sent, f"{task.mechanism.name}, a report", (value, law))
    if task.composition.dummy_laws:
        dummies = mechanism.dummies(reports // len(held), rng)
        name = f"{task.mechanism.name}, a dummy"
        _check_bits(checks, mechanism, dummies, name, (None, law))
    _check_counts(checks, task, mechanism, rng)


def _check_cells(
    checks: Checks, task: Task, mechanism: Mechanism, sent: Reports, own: tuple[int, float]
) -> None:
    """Test which place or bucket is named: near that of the value, or any other as likely."""
    value, chance = own
    name = f"{task.mechanism.name}, a report of any value"
    if isinstance(mechanism, LocalHashing | StringHashing):
        g = round(1 / mechanism.q_dummy)
        away = (sent["bucket"].astype(np.int64) - mechanism.hashed(sent, value)) % g
        law = np.full(g, (1 - chance) / (g - 1))
        law[0] = chance
        checks.test(f"{name}: buckets", fit.of_cells(np.bincount(away, minlength=g), law))
    elif task.mechanism.name in NAMING:
        named = np.bincount(sent["item"].astype(np.int64), minlength=places_of(task))
        checks.test(f"{name}: places", fit.of_cells(named, law_of_places(task, value, chance)))


def places_of(task: Task) -> int:
    """Give how many places a report may name."""
    return max(task.domain_size, task.item_mechanism.buckets)


def law_of_places(task: Task, value: int, own: float) -> np.ndarray:
    """Give how likely each place is named: one near the value, or any other."""
    places, size = places_of(task), task.domain_size
    law = np.full(places, (1 - own) / (size - 1))
    law[value : value + places - size + 1] = own / (places - size + 1)
    return law


def _check_bits(
    checks: Checks,
    mechanism: Mechanism,
    sent: Reports,
    name: str,
    held: tuple[int | None, SupportLaw],
) -> None:
    """Test how often any two bits of an encoding by bits are set together."""
    value, law = held
    if not isinstance(mechanism, UnaryEncoding):
        return
    bits = [mechanism.supports(sent, item) for item in range(mechanism.domain_size)]
    chances = [
        law.dummy if value is None else law.own if item == value else law.other
        for item in range(mechanism.domain_size)
    ]
    for one, other in itertools.combinations(range(mechanism.domain_size), 2):
        both = int((bits[one] & bits[other]).sum())
        p_value = fit.of_chance(both, len(sent), chances[one] * chances[other])
        checks.test(f"{name}: any two bits", p_value)


def _check_counts(
    checks: Checks, task: Task, mechanism: Mechanism, rng: np.random.Generator
) -> None:
    """Check that reports are counted by what they support, item by item."""
    values = rng.integers(0, task.domain_size, size=_COUNTED)
    sent = mechanism.randomize(values, rng)
    cells = mechanism.tally(sent)
    if not isinstance(mechanism, SupportCounting):
        found = [int((sent["item"] == place).sum()) for place in range(places_of(task))]
        counted = cells.tolist()
    else:
        items = np.unique(np.linspace(0, task.domain_size - 1, _SMALL).astype(int)).tolist()
        found = [int(mechanism.supports(sent, item).sum()) for item in items]
        support = mechanism.support_counts(cells)
        counted = [int(support[item]) for item in items]
    checks.must(
        f"{task.mechanism.name}: reports are counted by what they support", counted == found
    )
