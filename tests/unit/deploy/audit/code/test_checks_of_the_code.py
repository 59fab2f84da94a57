"""Checks of the running code, at little effort. Fixed seeds; a test errs with TEST_LEVEL."""

import numpy as np
import pytest

from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.registry import mechanism_of
from common.mechanisms.support import SupportCounting
from deploy.audit.catalogue import SCENARIOS
from deploy.audit.code.orders import in_buckets, in_memory
from deploy.audit.laws.panel import panel
from deploy.audit.laws.support_law import support_law
from tests.support.audits import audited, played
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task

_OF_THE_CODE = (
    "orders",
    "devices",
    "randomizer",
    "mechanisms",
    "batches",
    "draws",
    "estimates",
    "accountant",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", _OF_THE_CODE)
def test_honest_code_passes(name: str) -> None:
    """Each row holds, and says how much was drawn."""
    [scenario] = [scenario for scenario in SCENARIOS if scenario.name == name]
    rows = played(scenario, audited())

    assert ["holds"] * len(rows) == [row.verdict for row in rows], [row.sentence for row in rows]
    assert sum(row.tests for row in rows) > 0 or name == "accountant"


def test_laws_are_those_of_the_mechanisms() -> None:
    """Written twice, from ε and from integers: they agree for every protocol."""
    for task in (*map(protocol_task, ITEM_PROTOCOLS), *panel()):
        mechanism, law = mechanism_of(task), support_law(task)
        if isinstance(mechanism, SupportCounting):
            found = (mechanism.p, mechanism.q, mechanism.q_dummy)
            assert found == pytest.approx((law.own, law.other, law.dummy), rel=1e-8)
        hashed = isinstance(mechanism, LocalHashing)
        assert not hashed or law.independent


@pytest.mark.parametrize("ordering", [in_memory, in_buckets])
@pytest.mark.parametrize("n", [0, 1, 2, 3001])
def test_an_order_holds_every_place_once(ordering: object, n: int) -> None:
    """Through the code that shufflers run."""
    assert callable(ordering)
    order = ordering(n, np.random.default_rng(1))

    assert sorted(order.tolist()) == list(range(n))
