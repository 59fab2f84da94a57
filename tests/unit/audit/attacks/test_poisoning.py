"""Crafted reports compared with all reports, and the gain's formula with the paper."""

import itertools
import math

import numpy as np
import pytest

from audit.attacks.poisoning import crafted, leverage, supported
from common.mechanisms.hashing.local_hashing import REPORT_DTYPE, LocalHashing
from common.mechanisms.registry import mechanism_of
from tests.support.protocol_tasks import protocol_task

_TARGETS = np.arange(20, 30)
_SPREAD = np.array([3, 8, 17, 22, 29])
_SHARE, _HELD = 0.05, 0.02
_E = math.exp(2.0)
"""e^ε of the tasks."""


@pytest.mark.parametrize(
    ("protocol", "printed"),
    [
        # [CJG21]: β(1 - f_T) + β(d - r) / (e^ε - 1) for kRR.
        ("ldp-grr", _SHARE * (1 - _HELD) + _SHARE * (30 - 10) / (_E - 1)),
        # β(2r - f_T) + 2βr / (e^ε - 1) for OUE.
        ("ldp-oue", _SHARE * (2 * 10 - _HELD) + 2 * _SHARE * 10 / (_E - 1)),
    ],
)
def test_the_gain_is_that_of_the_paper(protocol: str, printed: float) -> None:
    """Computed from p and q, and from ε; users who only lie gain λ·(1 - f_T)."""
    task = protocol_task(protocol)
    lever = leverage(task, mechanism_of(task), _TARGETS, np.random.default_rng(1))

    found = _SHARE * (lever.answers(lever.weight) - _HELD)
    assert printed == pytest.approx(found, rel=1e-6)
    assert pytest.approx(1) == lever.answers(
        lever.own_floor + lever.signal + 3 * lever.dummy_floor, 4
    )


@pytest.mark.parametrize("protocol", ["ldp-blh", "murs"])
def test_no_report_of_the_family_raises_the_targets_more(protocol: str) -> None:
    """Supported targets, minus the proportional share of all supported items."""
    mechanism = mechanism_of(protocol_task(protocol))
    assert isinstance(mechanism, LocalHashing)
    family = mechanism.family
    every = np.array(
        list(itertools.product(range(family.seeds), range(family.q))), dtype=REPORT_DTYPE
    )
    share = len(_SPREAD) / mechanism.domain_size
    items = np.arange(mechanism.domain_size)
    lifts = supported(mechanism, every, _SPREAD) - share * supported(mechanism, every, items)

    found = crafted(mechanism, _SPREAD, np.random.default_rng(1))
    lift = supported(mechanism, found, _SPREAD) - share * supported(mechanism, found, items)
    assert lifts.max() == pytest.approx(lift[0], abs=1e-9)


@pytest.mark.parametrize(
    ("protocol", "held"),
    [("ldp-grr", 1), ("ldp-sue", 5), ("ldp-oue", 5), ("ldp-warner", 1), ("ldp-olh-strings", 3)],
)
def test_a_crafted_report_supports_as_many_targets_as_possible(protocol: str, held: int) -> None:
    """A report that names an item supports one, bits support all, a searched seed some."""
    task = protocol_task(protocol)
    mechanism, targets = mechanism_of(task), _SPREAD[_SPREAD < task.domain_size]
    targets = targets if len(targets) else np.array([1])
    report = crafted(mechanism, targets, np.random.default_rng(1))

    assert mechanism.valid(report).all()
    assert held <= supported(mechanism, report, targets)[0]
