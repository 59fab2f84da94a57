"""
Services stopped and killed as child processes: no submission is lost or counted twice.

Every user holds a different value and retries a bulk call until it is acknowledged. Seeds fix each
user's report, so that the released histogram is compared with the exact counts.
"""

import asyncio
import os
import random
import time
from collections.abc import Sequence
from typing import Final

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PeerError
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime.rpc import open_channel, reply
from shuffledp.common.task.task import Task
from shuffledp.common.wire.submissions import outcomes_from_wire
from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffledp.user_agent.contribution import Contributor
from tests.support.clients import publish
from tests.support.results import counts_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

_USERS: Final = 400
_SEED: Final = int(os.environ.get("SHUFFLEDP_KILL_SEED", "1"))
"""Seed of the times of kills, and of the killed services."""
_PATIENCE: Final = 120.0


@pytest.mark.parametrize(
    ("rounds", "kills", "calls"),
    [pytest.param(1, 3, 15, id="3"), pytest.param(10, 20, 40, id="200", marks=pytest.mark.slow)],
)
async def test_nothing_is_lost_or_counted_twice_under_kills(
    running: Cluster, rounds: int, kills: int, calls: int
) -> None:
    """The shuffler and analyzer are killed while users submit and batches are delivered."""
    moments = random.Random(_SEED)  # noqa: S311  # when to kill is no secret
    for number in range(rounds):
        signed = await publish(
            running,
            _USERS,
            protocol="ldp-grr",
            domain_size=_USERS,
            buckets=0,
            dummies_per_user=0,
            local_epsilon=4.0,
        )
        killing = asyncio.create_task(_kill(running, moments, kills))
        await _submit(running, signed, calls, seed=number)
        await killing
        async with running.operator() as operator, asyncio.timeout(_PATIENCE):
            result = await operator.wait_for_result(signed.digest())

        assert (_USERS, _USERS) == (result.n_users, result.n_reports)
        assert 0 == sum(result.refused.values())
        expected = _reported(signed, number)
        np.testing.assert_array_equal(expected, counts_of(signed, result))


async def _kill(cluster: Cluster, moments: random.Random, kills: int) -> None:
    """Kill one of the two services at a time, and restart it at its address."""
    for _ in range(kills):
        await asyncio.sleep(moments.uniform(0.0, 0.6))
        child, start = cluster.analyzer, cluster.start_analyzer
        if moments.random() < 0.5:
            child, start = cluster.shuffler, cluster.start_shuffler
        child.process.kill()
        await child.process.wait()
        await start(listen=child.address)


async def _submit(cluster: Cluster, signed: SignedTask, number: int, seed: int) -> None:
    """Send every user's envelope until it is acknowledged; some calls are made twice."""
    contributor = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
    envelopes = [
        contributor.prepare(n, np.random.default_rng((seed, n))).envelope for n in range(_USERS)
    ]
    calls = [envelopes[start::number] for start in range(number)]
    authority = cluster.authority.read_bytes()
    async with open_channel(cluster.shuffler.address, "shuffler", authority) as channel:
        for call in calls:
            await _acknowledged(channel, signed, call)
            await asyncio.sleep(0.1)


async def _acknowledged(
    channel: grpc.aio.Channel, signed: SignedTask, envelopes: Sequence[bytes]
) -> None:
    stub = shuffler_pb2_grpc.ShufflerStub(channel)
    request = shuffler_pb2.SubmitBulkRequest(task_digest=signed.digest(), envelopes=envelopes)
    give_up = time.monotonic() + _PATIENCE
    while time.monotonic() < give_up:
        try:
            outcomes = outcomes_from_wire(await reply(stub.SubmitBulk(request, timeout=10), "it"))
        except PeerError:
            await asyncio.sleep(0.05)
            continue
        assert set(outcomes) <= {Outcome.STORED, Outcome.REPEATED}
        return
    raise AssertionError("the shuffler does not come back")


def _reported(signed: SignedTask, seed: int) -> NDArray[np.int64]:
    """Compute each user's report: the first draw from their seed."""
    mechanism = mechanism_of(Task.from_bytes(signed.task_bytes))
    reports = [
        mechanism.randomize(np.array([user]), np.random.default_rng((seed, user)))
        for user in range(_USERS)
    ]
    return mechanism.tally(np.concatenate(reports))


async def test_sigterm_ends_each_process_gracefully(running: Cluster) -> None:
    """The exit status is 0, and the last log line says 'stopped'."""
    for child in (running.user_agent, running.shuffler, running.analyzer):
        assert 0 == await child.stop()
        assert '"stopped"' in child.log.read_text(encoding="utf-8").splitlines()[-1]
