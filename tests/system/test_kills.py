"""
The services as processes of their own, stopped and killed: nothing is lost or counted twice.

Under load every user holds a value of their own and sends it through a bulk call that is made again
until it is acknowledged. What each of them will have reported is worked out beforehand from the
seed of their randomness, so that the released histogram is compared report by report.
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

from common.crypto.signing import PublicIdentity, SignedTask
from common.errors import PeerError
from common.mechanisms.registry import mechanism_of
from common.messages.result import Result
from common.messages.submission import Outcome
from common.runtime.rpc import open_channel, reply
from common.task.task import Task
from common.wire.submissions import outcomes_from_wire
from deploy.clients.local_cluster import Cluster
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc, user_agent_pb2, user_agent_pb2_grpc
from tests.support.children import publish
from tests.support.policies import generous
from user_agent.budget import Budget
from user_agent.contribution import Contributor
from user_agent.policy import Claim

_USERS: Final = 400
_CALLS: Final = 40
_SEED: Final = int(os.environ.get("SHUFFLEDP_KILL_SEED", "1"))
"""Of the moments and the victims; say another one to see others."""
_PATIENCE: Final = 120.0


@pytest.mark.parametrize(
    ("rounds", "kills"),
    [pytest.param(1, 4, id="4"), pytest.param(10, 20, id="200", marks=pytest.mark.slow)],
)
async def test_nothing_is_lost_or_counted_twice_under_kills(
    cluster: Cluster, rounds: int, kills: int
) -> None:
    """Shuffler and analyzer die again and again, while submitting, permuting and delivering."""
    moments = random.Random(_SEED)  # noqa: S311  # when to kill is no secret
    for number in range(rounds):
        signed = await publish(
            cluster,
            _USERS,
            protocol="ldp-grr",
            domain_size=_USERS,
            buckets=0,
            dummies_per_user=0,
            local_epsilon=4.0,
        )
        killing = asyncio.create_task(_kill(cluster, moments, kills))
        await _submit(cluster, signed, seed=number)
        await killing
        async with cluster.operator() as operator, asyncio.timeout(_PATIENCE):
            result = await operator.wait_for_result(signed.digest())

        assert (_USERS, _USERS) == (result.n_users, result.n_reports)
        assert 0 == sum(result.refused.values())
        expected = _reported(signed, number)
        np.testing.assert_array_equal(expected, _counts(signed, result))


async def _kill(cluster: Cluster, moments: random.Random, kills: int) -> None:
    """Kill one of the two services at a time, and start it again where it was."""
    for _ in range(kills):
        await asyncio.sleep(moments.uniform(0.0, 0.6))
        if moments.random() < 0.5:
            address = cluster.shuffler.address
            cluster.shuffler.process.kill()
            await cluster.shuffler.process.wait()
            await cluster.start_shuffler(address)
        else:
            address = cluster.analyzer.address
            cluster.analyzer.process.kill()
            await cluster.analyzer.process.wait()
            await cluster.start_analyzer(address)


async def _submit(cluster: Cluster, signed: SignedTask, seed: int) -> None:
    """Send every user's envelope until it is acknowledged; some calls are made twice."""
    contributor = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
    envelopes = [
        contributor.prepare(user, np.random.default_rng((seed, user))) for user in range(_USERS)
    ]
    calls = [envelopes[start::_CALLS] for start in range(_CALLS)]
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
    """Work out what each user reported: the first thing that they drew."""
    mechanism = mechanism_of(Task.from_bytes(signed.task_bytes))
    reports = [
        mechanism.randomize(np.array([user]), np.random.default_rng((seed, user)))
        for user in range(_USERS)
    ]
    return mechanism.tally(np.concatenate(reports))


def _counts(signed: SignedTask, result: Result) -> NDArray[np.int64]:
    """Turn debiased shares back into the counts that they came from."""
    spec = Task.from_bytes(signed.task_bytes).item_mechanism
    total = spec.true_weight + (_USERS - 1) * spec.other_weight
    p, q = spec.true_weight / total, spec.other_weight / total
    shares = np.asarray(result.histogram.frequencies)
    return np.rint(_USERS * (shares * (p - q) + q)).astype(np.int64)


_DEADLINE = 60.0


async def test_sigterm_ends_each_process_gracefully(cluster: Cluster) -> None:
    """Exit status 0, and the last log line says so."""
    for child in (cluster.user_agent, cluster.shuffler, cluster.analyzer):
        assert 0 == await child.stop()
        assert '"stopped"' in child.log.read_text(encoding="utf-8").splitlines()[-1]


async def _save_without_sending(cluster: Cluster, signed: SignedTask, person: str) -> None:
    """Stop the agent, and leave in its file what a crash before sending would."""
    await cluster.user_agent.stop()
    budget = Budget(cluster.user_agent.state / "budget.sqlite")
    task = Task.from_bytes(signed.task_bytes)
    contributor = Contributor(task, signed.digest())
    identity = (cluster.analyzer.state / "identity.pub").read_text(encoding="ascii")
    await budget.spend(
        person,
        signed.digest(),
        Claim.of(task),
        generous(PublicIdentity.from_hex(identity, "analyzer_identity")),
        lambda: contributor.answer(2, np.random.default_rng(1)),
    )
    budget.close()


async def test_a_killed_user_agent_sends_the_same_bytes_again(cluster: Cluster) -> None:
    """Saved while the shuffler was away; the next process sends it without being asked again."""
    signed = await publish(cluster, 2)
    address = cluster.shuffler.address

    async def contribute(person: str) -> None:
        request = user_agent_pb2.ContributeRequest(
            task_digest=signed.digest(), value=1, person=person
        )
        async with open_channel(cluster.user_agent.address, "user_agent", None) as channel:
            stub = user_agent_pb2_grpc.UserAgentStub(channel)
            await reply(stub.Contribute(request, timeout=20), "it")

    await contribute("first")
    cluster.shuffler.process.kill()
    await cluster.shuffler.process.wait()
    with pytest.raises(PeerError):
        await contribute("third, who cannot fetch the task")
    await cluster.start_shuffler(address)
    await _save_without_sending(cluster, signed, "second")
    await cluster.start_user_agent()
    async with cluster.operator() as operator, asyncio.timeout(_DEADLINE):
        result = await operator.wait_for_result(signed.digest())

    assert 2 == result.n_users
    assert 0 == sum(result.refused.values())
