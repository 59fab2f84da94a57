"""
Front-ends, PostgreSQL, engines and coordinators killed at random: every user is counted once.

`make scale-test USERS=200000 KILLS=50 SEED=1` runs it at length.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from shuffledp.audit.statistics import p_blocks, p_neighbours, p_rank
from tests.scale.chaos import Chaos
from tests.scale.cluster import ScaleCluster
from tests.scale.sender import CALL, Users, expected
from tests.support.clients import publish
from tests.support.results import counts_of

_USERS: Final = int(os.environ.get("SHUFFLEDP_SCALE_USERS", "2000"))
_KILLS: Final = int(os.environ.get("SHUFFLEDP_SCALE_KILLS", "8"))
_SEED: Final = int(os.environ.get("SHUFFLEDP_SCALE_SEED", "1"))
_ITEMS: Final = 50
_LEVEL: Final = 1e-7
"""Level of each test of the order."""
_PATIENCE: Final = 1200.0


@pytest.mark.slow
async def test_every_acknowledged_user_is_counted_once(tmp_path: Path) -> None:
    """
    A third of the kills fall while the batch is shuffled, delivered and counted.

    Items rise with the calls, so a delivery that keeps traces of the order of arrival fails; by
    chance one of three tests fails with probability below 1e-6, over the runs' own randomness.
    """
    calls = _USERS // CALL
    async with ScaleCluster(tmp_path) as cluster:
        signed = await publish(
            cluster,
            calls * CALL,
            protocol="ldp-grr",
            domain_size=_ITEMS,
            buckets=0,
            dummies_per_user=0,
            local_epsilon=4.0,
        )
        addresses = [child.address for child in cluster.front_ends]
        users = Users(signed, addresses, cluster.authority.read_bytes(), _SEED)
        chaos = Chaos(cluster.victims(), _SEED)
        async with asyncio.timeout(_PATIENCE + _USERS / 100), asyncio.TaskGroup() as group:
            group.create_task(users.send(calls))
            group.create_task(chaos.kill(_KILLS - _KILLS // 3))
        await chaos.kill(_KILLS // 3)
        async with cluster.operator() as operator, asyncio.timeout(_PATIENCE):
            result = await operator.wait_for_result(signed.digest())
        delivered = cluster.items_in_order(signed)

    sys.stdout.write(
        f"kills {dict(chaos.kills)}, retries {users.retries}, repeated {users.repeated}\n"
    )
    assert calls * CALL == users.acknowledged == result.n_users == result.n_reports
    assert 0 == sum(result.refused.values())
    np.testing.assert_array_equal(expected(signed, _SEED, calls), counts_of(signed, result))
    np.testing.assert_array_equal(
        np.bincount(delivered, minlength=_ITEMS), counts_of(signed, result)
    )
    ties = np.random.default_rng(_SEED).random(len(delivered))
    arrived = np.argsort(np.lexsort((ties, delivered)))
    levels = p_rank(arrived), p_blocks(arrived), p_neighbours(delivered)
    assert _LEVEL < min(1.0 if level is None else level for level in levels), levels
