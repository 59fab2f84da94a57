"""
Whether randomizers have their laws: of the audited task, and of every mechanism there is.

What a report tells is which values it supports, so that is what is counted: the own value, every
other one, two at once; and where a report draws a seed, that the seed is uniform and the hash
family pairwise independent, by going through all its seeds.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from common.crypto.randomness import secure_generator
from common.mechanisms.base import Mechanism, Reports
from common.mechanisms.hashing.finite_field import HashFamily
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.registry import mechanism_of
from common.task.task import Task
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.singly import check_singly
from deploy.audit.code.tables import NAMING, check_tables, law_of_places, places_of
from deploy.audit.code.taken import bits_taken
from deploy.audit.finding import Finding, Outcome
from deploy.audit.laws.panel import panel
from deploy.audit.laws.support_law import SupportLaw, support_law

_AT_ONCE: Final = 250_000
"""Reports drawn together; unary ones are long."""
_MOST_BYTES: Final = 50_000_000
"""Of the reports of one kind that are drawn."""
_MOST_VALUES: Final = 500
_ALONE: Final = 1000
"""Reports made one at a time."""
_LEAST_BITS: Final = 8
"""Random bits that a report takes at the least."""
_FEW: Final = 12
"""Items up to which every one is looked at."""
_SEEDS_EACH: Final = 200
"""At least expected in a part of all seeds."""
_PRODUCTION: Final = 8
"""As many times fewer reports are drawn by the generator that devices have."""
_SURELY: Final = 8.0
"""Standard deviations: 5.5 until a test fails, and 2.5 for chance."""
_SMALL_FAMILY: Final = 2**16


def play_randomizer(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Test the audited task's own randomizer and dummies."""
    finding = _tested(
        (audited.task,),
        (audited.effort.reports, audited.effort.reports),
        rng,
        scenario="randomizer",
        title="This task's reports and dummies have their laws",
        sentence="The running code draws reports and dummies with the very probabilities that all "
        "guarantees are computed from.",
    )
    return Outcome(findings=(finding,))


def play_panel(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Test every mechanism, on small tasks."""
    tasks = tuple({_law(task): task for task in panel()}.values())
    names = {task.mechanism.name for task in tasks}
    finding = _tested(
        tasks,
        (audited.effort.reports // 4, audited.effort.reports),
        rng,
        scenario="mechanisms",
        title=f"All {len(names)} mechanisms have their laws, in {len(tasks)} small tasks",
        sentence="Every randomizer that a task may name draws with the probabilities that its "
        "paper states, at the local ε and sizes that were tried.",
    )
    return Outcome(findings=(finding,))


def _law(task: Task) -> tuple[str, float, int, int]:
    """Give what a report's law depends on: sample tasks that differ in other things share it."""
    return task.mechanism.name, task.local_epsilon, task.domain_size, task.item_mechanism.buckets


def _tested(
    tasks: Sequence[Task],
    drawn: tuple[int, int],
    rng: np.random.Generator,
    *,
    scenario: str,
    title: str,
    sentence: str,
) -> Finding:
    checks, seen = Checks(), 0.0
    for task in tasks:
        seen = max(seen, check_randomizer(checks, task, drawn, rng))
    return checks.finding(
        scenario=scenario,
        title=title,
        heading="correctness",
        sentence=f"{sentence} A truth that is told {seen:.1%} too often or too seldom would nearly "
        "certainly be seen.",
        trials=drawn[1],
        advice="Do not collect with this version: its guarantees do not describe it.",
    )


def check_randomizer(
    checks: Checks, task: Task, drawn: tuple[int, int], rng: np.random.Generator
) -> float:
    """
    Test one task's reports and dummies against the law of its mechanism.

    Args:
        checks: Where the tests are noted, under the mechanism's name.
        task: Whose mechanism.
        drawn: Reports of each kind, fewer where they are long; and of those of every value.
        rng: Of all draws.

    Returns:
        By how much of itself the chance of telling the truth must be off to be surely seen.
    """
    mechanism, law = mechanism_of(task), support_law(task)
    reports = min(drawn[0], _MOST_BYTES // mechanism.report_dtype.itemsize)
    name, last = task.mechanism.name, task.domain_size - 1
    own = _check_every_value(checks, name, mechanism, law, (drawn[1], rng))
    some = (drawn[1] // _PRODUCTION, secure_generator())
    _check_every_value(checks, f"{name}, by production's generator", mechanism, law, some)
    _check_alone(checks, name, mechanism, law, rng)
    _check_source(checks, name, mechanism)
    check_singly(checks, task, rng)
    check_tables(checks, task, reports, rng)
    for value in (0, last):
        sent = _draw(mechanism, value, reports, rng)
        _check_support(checks, f"{name}, a report", mechanism, sent, (value, law, last))
        _check_pair(checks, f"{name}, a report", mechanism, sent, (value, law))
        _check_seeds(checks, f"{name}, a report", mechanism, sent)
        _check_buckets(checks, f"{name}, a report", mechanism, sent, (value, law.own))
        _check_places(checks, f"{name}, a report", task, sent, (value, law.own))
    if task.composition.dummy_laws:
        dummies = mechanism.dummies(reports, rng)
        _check_support(checks, f"{name}, a dummy", mechanism, dummies, (None, law, last))
        _check_seeds(checks, f"{name}, a dummy", mechanism, dummies)
        _check_buckets(checks, f"{name}, a dummy", mechanism, dummies, (0, law.dummy))
        _check_even_buckets(checks, f"{name}, a dummy", mechanism, dummies)
        _check_places(checks, f"{name}, a dummy", task, dummies, None)
    if isinstance(mechanism, LocalHashing):
        _check_family(checks, mechanism, rng)
    return _SURELY * math.sqrt((1 - law.own) / law.own / own)


def _draw(mechanism: Mechanism, value: int, count: int, rng: np.random.Generator) -> Reports:
    return np.concatenate(
        [mechanism.randomize(np.full(part, value, dtype=np.int64), rng) for part in _parts(count)]
    )


def _parts(count: int) -> list[int]:
    """Cut a number of reports into what is drawn together."""
    return [min(_AT_ONCE, count - start) for start in range(0, count, _AT_ONCE)]


def _check_every_value(
    checks: Checks,
    name: str,
    mechanism: Mechanism,
    law: SupportLaw,
    drawing: tuple[int, np.random.Generator],
) -> int:
    """
    Test that every value is as often its report's own as any other: of a large domain, some.

    Returns:
        How many reports were drawn.
    """
    reports, rng = drawing
    values = np.unique(np.linspace(0, mechanism.domain_size - 1, _MOST_VALUES).astype(np.int64))
    each = max(1, reports // len(values))
    own = [
        sum(
            int(mechanism.supports(mechanism.randomize(np.full(part, v), rng), int(v)).sum())
            for part in _parts(each)
        )
        for v in values
    ]
    checks.test(f"{name}, a report: every value alike", fit.of_shares(own, each, law.own))
    return each * len(values)


def _check_alone(
    checks: Checks, name: str, mechanism: Mechanism, law: SupportLaw, rng: np.random.Generator
) -> None:
    """Test reports that are made one at a time, as a device makes them."""
    values = np.arange(_ALONE, dtype=np.int64) % mechanism.domain_size
    own = sum(
        bool(mechanism.supports(mechanism.randomize(values[place : place + 1], rng), int(value))[0])
        for place, value in enumerate(values)
    )
    checks.test(f"{name}, a report by itself", fit.of_chance(own, _ALONE, law.own))


def _check_source(checks: Checks, name: str, mechanism: Mechanism) -> None:
    """Reports and dummies follow from the generator handed in, and take enough from it."""
    values = np.arange(_ALONE, dtype=np.int64) % mechanism.domain_size
    kinds: dict[str, Callable[[np.random.Generator], Reports]] = {
        "reports": lambda rng: mechanism.randomize(values, rng),
        "dummies": lambda rng: mechanism.dummies(_ALONE, rng),
    }
    for kind, draw in kinds.items():
        first, again = (draw(np.random.default_rng(7)).tobytes() for _ in range(2))
        checks.must(f"{name}, {kind} follow from their generator", first == again)
        certain = kind == "reports" and "item" in (mechanism.report_dtype.names or ())
        if certain and math.isinf(mechanism.local_epsilon):
            continue  # nothing is drawn
        counted = np.random.Philox(key=3)
        draw(np.random.Generator(counted))
        checks.must(
            f"{name}, {kind} take fresh bits each", bits_taken(counted) >= _LEAST_BITS * _ALONE
        )


def _items(last: int) -> list[int]:
    """Give the items to look at: all of a few, or some spread over many."""
    if last < _FEW:
        return list(range(last + 1))
    return [int(item) for item in np.unique(np.linspace(0, last, _FEW).astype(int))]


def _check_support(
    checks: Checks,
    what: str,
    mechanism: Mechanism,
    drawn: Reports,
    held: tuple[int | None, SupportLaw, int],
) -> None:
    value, law, last = held
    checks.must(f"{what}: valid", bool(mechanism.valid(drawn).all()))
    for item in _items(last):
        if value is None:
            kind, chance = "supports an item", law.dummy
        elif item == value:
            kind, chance = "supports its own item", law.own
        elif law.far_only and item != last - value:
            continue
        else:
            kind, chance = "supports another item", law.other
        supporting = int(mechanism.supports(drawn, item).sum())
        checks.test(f"{what}: {kind}", fit.of_chance(supporting, len(drawn), chance))


def _check_pair(
    checks: Checks,
    what: str,
    mechanism: Mechanism,
    drawn: Reports,
    held: tuple[int, SupportLaw],
) -> None:
    """Test how often the own and another item are supported at once."""
    value, law = held
    if law.far_only:
        return
    other = mechanism.domain_size - 1 - value
    both = mechanism.supports(drawn, value) & mechanism.supports(drawn, other)
    chance = law.own * law.other if law.independent else 0.0
    checks.test(
        f"{what}: supports both of two items", fit.of_chance(int(both.sum()), len(drawn), chance)
    )


def _check_seeds(checks: Checks, what: str, mechanism: Mechanism, drawn: Reports) -> None:
    """Test that seeds are uniform, and that no neighbours share one."""
    if "seed" not in (drawn.dtype.names or ()):
        return
    seeds = drawn["seed"].astype(np.uint64)
    number = mechanism.family.seeds if isinstance(mechanism, LocalHashing) else 2**64
    # A power of two, so that parity is seen; as many as expect some hundreds of seeds each.
    cells = min(number, 1 << max(1, (len(seeds) // _SEEDS_EACH).bit_length() - 1))
    # Equal parts of the range, and what is left over by the number of parts: high and low digits.
    low = (seeds % np.uint64(cells)).astype(np.int64)
    evenly = np.full(cells, number // cells, dtype=np.float64)
    evenly[: number % cells] += 1
    checks.test(f"{what}: uniform seeds", fit.of_cells(np.bincount(low, minlength=cells), evenly))
    width = -(-number // cells)
    high = (seeds // np.uint64(width)).astype(np.int64)
    parts = np.bincount(high, minlength=-(-number // width))
    sizes = np.full(len(parts), float(width))
    sizes[-1] = number - width * (len(parts) - 1)
    checks.test(f"{what}: seeds all over", fit.of_cells(parts, sizes))
    # Without it seeds would not be pairwise independent, and one seed of many is soon overlooked.
    zeros = int((seeds == 0).sum())
    checks.test(f"{what}: seed 0 as often as any", fit.of_number(zeros, len(seeds) / number))
    same = int((seeds[1:] == seeds[:-1]).sum())
    checks.test(f"{what}: a seed of its own", fit.of_number(same, (len(seeds) - 1) / number))


def _check_buckets(
    checks: Checks, what: str, mechanism: Mechanism, drawn: Reports, own: tuple[int, float]
) -> None:
    """Test buckets as seen from that of the value: what is not the truth is anything else."""
    if not isinstance(mechanism, (LocalHashing, StringHashing)):
        return
    item, chance = own
    g = _buckets(mechanism)
    away = (drawn["bucket"].astype(np.int64) - mechanism.hashed(drawn, item)) % g
    law = np.full(g, (1 - chance) / (g - 1))
    law[0] = chance
    checks.test(
        f"{what}: every wrong bucket as likely", fit.of_cells(np.bincount(away, minlength=g), law)
    )


def _check_even_buckets(checks: Checks, what: str, mechanism: Mechanism, dummies: Reports) -> None:
    """Test that dummies spread evenly over buckets, whatever hashes there."""
    if not isinstance(mechanism, (LocalHashing, StringHashing)):
        return
    g = _buckets(mechanism)
    named = np.bincount(dummies["bucket"].astype(np.int64), minlength=g)
    checks.test(f"{what}: every bucket as likely", fit.of_cells(named, np.ones(g)))


def _check_places(
    checks: Checks, what: str, task: Task, sent: Reports, own: tuple[int, float] | None
) -> None:
    """Test which place a report names that names one: near its value, or any other as likely."""
    if task.mechanism.name not in NAMING:
        return
    places = places_of(task)
    named = np.bincount(sent["item"].astype(np.int64), minlength=places)
    law = np.ones(places) if own is None else law_of_places(task, *own)
    checks.test(f"{what}: every place as its law says", fit.of_cells(named, law))


def _buckets(mechanism: LocalHashing | StringHashing) -> int:
    return mechanism.family.q if isinstance(mechanism, LocalHashing) else mechanism.buckets


def _check_family(checks: Checks, mechanism: LocalHashing, rng: np.random.Generator) -> None:
    """Go through all seeds: any two items fall into one bucket under exactly 1/g of them."""
    family: HashFamily = mechanism.family
    if family.seeds > _SMALL_FAMILY:
        return
    seeds = np.arange(family.seeds)
    items = rng.choice(mechanism.domain_size, size=min(4, mechanism.domain_size), replace=False)
    buckets = [_hashed(mechanism, seeds, int(item)) for item in items]
    for one, other in itertools.combinations(buckets, 2):
        together = int((one == other).sum())
        checks.must(
            "local-hashing: two items collide with chance 1/g", together * family.q == family.seeds
        )


def _hashed(mechanism: LocalHashing, seeds: np.ndarray, item: int) -> np.ndarray:
    """Give the bucket of an item under each seed."""
    reports = np.zeros(len(seeds), dtype=mechanism.report_dtype)
    reports["seed"] = seeds
    return mechanism.hashed(reports, item)
