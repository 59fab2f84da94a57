"""The three services as processes of their own: stopped, killed, and started again."""

import asyncio

import numpy as np

from common.runtime.rpc import open_channel, reply
from common.signing import SignedTask
from common.submission import Outcome
from deploy.cluster import Cluster
from deploy.load import contribute_all
from protos.shuffledp.v1 import user_agent_pb2, user_agent_pb2_grpc
from tests.support.children import publish

_DEADLINE = 60.0


async def _contribute(cluster: Cluster, signed: SignedTask, n_users: int) -> None:
    authority = cluster.authority.read_bytes()
    async with open_channel(cluster.shuffler.address, "shuffler", authority) as channel:
        outcomes = await contribute_all(np.zeros(n_users, np.int64), signed, channel)
    assert {Outcome.STORED: n_users} == dict(outcomes)


async def test_sigterm_ends_each_process_gracefully(cluster: Cluster) -> None:
    """Exit status 0, and the last log line says so."""
    for child in (cluster.user_agent, cluster.shuffler, cluster.analyzer):
        assert 0 == await child.stop()
        assert '"stopped"' in child.log.read_text(encoding="utf-8").splitlines()[-1]


async def test_nothing_acknowledged_is_lost_when_processes_are_killed(cluster: Cluster) -> None:
    """Shuffler and analyzer are killed without notice in the middle of a collection."""
    signed = await publish(cluster, 600)
    await _contribute(cluster, signed, 300)
    analyzer_address, shuffler_address = cluster.analyzer.address, cluster.shuffler.address
    await cluster.shuffler.kill()
    await cluster.start_shuffler(shuffler_address)
    await cluster.analyzer.kill()
    await _contribute(cluster, signed, 300)
    await cluster.start_analyzer(analyzer_address)
    async with cluster.operator() as operator, asyncio.timeout(_DEADLINE):
        result = await operator.wait_for_result(signed.digest())

    assert 600 == result.n_users
    assert 0 == sum(result.refused.values())


async def test_a_killed_user_agent_sends_the_same_bytes_again(cluster: Cluster) -> None:
    """Saved while the shuffler was away, sent once by the next process."""
    signed = await publish(cluster, 2)
    address = cluster.shuffler.address
    first = user_agent_pb2.ContributeRequest(task_digest=signed.digest(), value=1, person="first")
    second = user_agent_pb2.ContributeRequest(task_digest=signed.digest(), value=2, person="second")
    async with open_channel(cluster.user_agent.address, "user_agent", None) as channel:
        await reply(user_agent_pb2_grpc.UserAgentStub(channel).Contribute(first, timeout=20))
        await cluster.user_agent.kill()
    await cluster.start_user_agent()
    async with open_channel(cluster.user_agent.address, "user_agent", None) as channel:
        stub = user_agent_pb2_grpc.UserAgentStub(channel)
        assert (await reply(stub.Contribute(first, timeout=20))).repeated
        await cluster.shuffler.kill()
        await cluster.start_shuffler(address)
        assert not (await reply(stub.Contribute(second, timeout=20))).repeated
    async with cluster.operator() as operator, asyncio.timeout(_DEADLINE):
        result = await operator.wait_for_result(signed.digest())

    assert 2 == result.n_users
    assert 0 == sum(result.refused.values())
