"""Reports that fake users choose, against trying every report there is."""

import itertools

import numpy as np
import pytest

from common.mechanisms.hashing.hashed_response import REPORT_DTYPE
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.registry import mechanism_of
from deploy.audit.attacks.crafted_reports import blunt, crafted, supported, uniform
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task

_TARGETS = np.array([3, 8, 17, 22, 29])


@pytest.mark.parametrize("protocol", ["ldp-blh", "murs"])
def test_no_report_of_the_family_lifts_the_targets_more(protocol: str) -> None:
    """What it supports of the targets, less what it supports of all items in proportion."""
    mechanism = mechanism_of(protocol_task(protocol))
    assert isinstance(mechanism, LocalHashing)
    family = mechanism.family
    every = np.array(
        list(itertools.product(range(family.seeds), range(family.q))), dtype=REPORT_DTYPE
    )
    share = len(_TARGETS) / mechanism.domain_size
    items = np.arange(mechanism.domain_size)
    lifts = supported(mechanism, every, _TARGETS) - share * supported(mechanism, every, items)

    found = crafted(mechanism, _TARGETS, np.random.default_rng(1))
    lift = supported(mechanism, found, _TARGETS) - share * supported(mechanism, found, items)
    assert lifts.max() == pytest.approx(lift[0], abs=1e-9)


def test_one_report_of_the_family_supports_every_item() -> None:
    """Seed 0 sends all of them to bucket 0, and is a valid seed."""
    mechanism = mechanism_of(protocol_task("murs"))
    report = blunt(mechanism)

    assert report is not None
    assert mechanism.valid(report).all()
    assert 30 == supported(mechanism, report, np.arange(30))[0]


@pytest.mark.parametrize(
    ("protocol", "held"),
    [("ldp-grr", 1), ("ldp-sue", 5), ("ldp-oue", 5), ("ldp-warner", 1), ("ldp-olh-strings", 3)],
)
def test_as_many_targets_are_supported_as_a_report_can_hold(protocol: str, held: int) -> None:
    """One by a report that names an item, all by bits, some by a seed that was looked for."""
    task = protocol_task(protocol)
    mechanism, targets = mechanism_of(task), _TARGETS[_TARGETS < task.domain_size]
    targets = targets if len(targets) else np.array([1])
    report = crafted(mechanism, targets, np.random.default_rng(1))

    assert mechanism.valid(report).all()
    assert held <= supported(mechanism, report, targets)[0]


@pytest.mark.parametrize("protocol", sorted(ITEM_PROTOCOLS))
def test_random_reports_are_valid(protocol: str) -> None:
    """The analyzer takes them."""
    mechanism = mechanism_of(protocol_task(protocol))

    assert mechanism.valid(uniform(mechanism, 1000, np.random.default_rng(1))).all()
