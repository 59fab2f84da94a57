"""Crafted reports compared with all reports, and the gain's formula with the paper."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from shuffledp.audit.attacks.poisoning import Leverage, Poisoning
from shuffledp.audit.weaknesses import COUNTED_TWICE
from shuffledp.common.mechanisms.hashing.local_hashing import REPORT_DTYPE
from shuffledp.common.task.draft import TableDraft
from tests.support.audits import audited
from tests.support.kind_tasks import ATTRIBUTES, kind_task
from tests.support.protocol_tasks import protocol_task

_TARGETS = np.arange(20, 30)
_SPREAD = np.array([3, 8, 17, 22, 29])
_SHARE, _HELD = 0.05, 0.02
_E = math.exp(2.0)
"""e^ε of the tasks."""


@pytest.mark.parametrize(
    ("protocol", "printed", "share"),
    [
        # [CJG21]: β(1 - f_T) + β(d - r) / (e^ε - 1) for kRR, whose shares sum to 1.
        ("ldp-grr", _SHARE * (1 - _HELD) + _SHARE * (30 - 10) / (_E - 1), 0.0),
        ("ldp-grr", _SHARE * (1 - _HELD) + _SHARE * (30 - 10) / (_E - 1), 1 / 3),
        # β(2r - f_T) + 2βr / (e^ε - 1) for OUE.
        ("ldp-oue", _SHARE * (2 * 10 - _HELD) + 2 * _SHARE * 10 / (_E - 1), 0.0),
        # The targets' third of the correction leaves two thirds of r / (p - q), and r/d.
        ("ldp-oue", _SHARE * (2 / 3 * 2 * 10 * (1 + 2 / (_E - 1)) + 1 / 3 - _HELD), 1 / 3),
    ],
)
def test_the_gain_is_that_of_the_paper(protocol: str, printed: float, share: float) -> None:
    """Computed from p and q, and from ε; users who only lie gain λ·(1 - f_T)."""
    task = protocol_task(protocol)
    correction = np.full(30, share / len(_TARGETS))
    lever = Leverage.of(audited(task), _TARGETS, np.random.default_rng(1), correction)
    assert lever is not None

    found = _SHARE * (lever.answers(lever.weight, lever.supported) - _HELD)
    assert printed == pytest.approx(found, rel=1e-6)
    honest, dummies = lever.own_floor + 3 * lever.dummy_floor, 3
    weights = honest + lever.signal, lever.items_per_target * honest + lever.signal
    assert pytest.approx(1) == lever.answers(*weights, 1 + dummies)


@pytest.mark.parametrize("protocol", ["ldp-blh", "murs"])
def test_no_report_of_the_family_raises_the_targets_more(protocol: str) -> None:
    """Supported targets, minus the proportional share of all supported items."""
    family = audited(protocol_task(protocol)).family
    seeds, buckets = range(family.n_seeds), range(family.mechanism.answers)
    every = np.array(list(itertools.product(seeds, buckets)), dtype=REPORT_DTYPE)
    items = np.arange(family.task.domain_size)
    share = len(_SPREAD) / len(items)
    lifts = family.supported(every, _SPREAD) - share * family.supported(every, items)

    found = family.crafted(_SPREAD, np.random.default_rng(1))
    lift = family.supported(found, _SPREAD) - share * family.supported(found, items)
    assert lifts.max() == pytest.approx(lift[0], abs=1e-9)


@pytest.mark.parametrize(
    ("protocol", "held"),
    [("ldp-grr", 1), ("ldp-sue", 5), ("ldp-oue", 5), ("ldp-warner", 1), ("ldp-olh-strings", 3)],
)
def test_a_crafted_report_supports_as_many_targets_as_possible(protocol: str, held: int) -> None:
    """A report that names an item supports one, bits support all, a searched seed some."""
    task = protocol_task(protocol)
    family, targets = audited(task).family, _SPREAD[_SPREAD < task.domain_size]
    targets = targets if len(targets) else np.array([1])
    report = family.crafted(targets, np.random.default_rng(1))

    assert family.mechanism.valid(report).all()
    assert held <= family.supported(report, targets)[0]


@pytest.mark.parametrize("pairs", [(), (("illness", "age"), ("smokes",), ("age",))])
def test_reports_on_one_cell_raise_it_as_calculated(pairs: tuple[tuple[str, ...], ...]) -> None:
    """The finding's check passes, and fails if the analyzer counts reports twice."""
    subject = audited(kind_task("tables", tables=TableDraft(attributes=ATTRIBUTES, tables=pairs)))
    attack = Poisoning(submissions=1, sentence="")
    [holds] = attack(subject, np.random.default_rng(1))
    [broken] = attack(dataclasses.replace(subject, ports=COUNTED_TWICE), np.random.default_rng(1))

    assert (True, False) == (holds.passed, broken.passed)
    assert holds.measured == pytest.approx(holds.expected)
    assert 0 < (holds.expected or 0) <= subject.task.lengths[-1]
